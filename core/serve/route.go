package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Class says who may use a route.
type Class struct{ what string }

// Everybody is the class of routes that answer every user.
var Everybody = Class{}

// Privileged returns the class of routes for peers that see all. what names the
// thing refused to others: "events of other users".
func Privileged(what string) Class { return Class{what} }

// Handle adds a route. pattern is one of http.ServeMux with a method, such as
// "GET /v1/processes/{pid}". The handler finds its peer with PeerOf; bodies end
// with an error after 64 KiB, and reading and writing have a deadline of 30 s.
// Calls come before Serve.
func (s *Server) Handle(pattern string, class Class, h http.HandlerFunc) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if class != Everybody && !PeerOf(r.Context()).All {
			WriteError(w, http.StatusForbidden, s.needs(class))
			return
		}
		h(w, r)
	})
}

func (s *Server) needs(class Class) string {
	if s.cfg.Group == "" {
		return class.what + " need root"
	}
	return fmt.Sprintf("%s need root or group %s", class.what, s.cfg.Group)
}

// serveHTTP is where every request enters.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Inc()
	rc := http.NewResponseController(w)
	rc.SetWriteDeadline(time.Now().Add(s.writeTimeout))
	if r.ContentLength > bodyMaxBytes {
		w.Header().Set("Connection", "close")
		WriteError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", bodyMaxBytes))
		return
	}
	if r.ContentLength != 0 { // -1: chunked
		rc.SetReadDeadline(time.Now().Add(s.writeTimeout))
		r.Body = http.MaxBytesReader(w, r.Body, bodyMaxBytes)
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.noRoute(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// noRoute answers what no route matches: the mux knows whether the path or the
// method is wrong, and which methods the path has.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	answer := headerOnly{header: http.Header{}}
	s.mux.ServeHTTP(&answer, r)
	if allow := answer.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		WriteError(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s is not allowed here; use %s", r.Method, allow))
		return
	}
	WriteError(w, http.StatusNotFound, "no such route")
}

// headerOnly is a ResponseWriter that keeps the header and drops the rest.
type headerOnly struct{ header http.Header }

func (w *headerOnly) Header() http.Header         { return w.header }
func (w *headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (w *headerOnly) WriteHeader(int)             {}

// WriteJSON answers with one JSON value, which it ends with a newline.
func WriteJSON(w http.ResponseWriter, status int, value []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(value, '\n'))
}

// errorBody is the body of every answer that is an error.
type errorBody struct {
	Error string `json:"error"`
}

// WriteError answers with the JSON object {"error": reason}.
func WriteError(w http.ResponseWriter, status int, reason string) {
	body, err := json.Marshal(errorBody{reason})
	if err != nil {
		panic("serve: a string that cannot be marshalled: " + err.Error())
	}
	WriteJSON(w, status, body)
}
