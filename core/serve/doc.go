// Package serve answers clients of the daemon on one Unix socket: HTTP with
// JSON and NDJSON under /v1/. Every request is authorised by the credentials
// of its peer, and everything that a client can make the daemon hold (header,
// body, connections, streams, unsent records) is bounded.
//
// Start reading at server.go; routes are added with Server.Handle (route.go),
// the event stream is events.go, and client.go is the other end of the socket.
package serve
