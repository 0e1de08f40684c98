package field

// Field describes one field. All of it is constant.
type Field struct {
	Name    string  // as after ps -o
	Aliases []Alias // further names
	Header  string  // as in the first line of ps
	Width   int     // least columns
	Right   bool    // aligned to the right
	JSON    string  // key; two fields share it where one only shows it otherwise
	Type    Type
	Unit    string // "ns", "ticks", "tasks", "bytes", or none
	Visible Class
	Source  string // origins, with commas: see below
	Doc     string // what it is, in one line
}

// Origins of a Source: "event" is the kernel's event stream, "stat:N" is field N
// of /proc/PID/stat, "kpidd" is made by kpidd.

// Alias is a further name of a field, with its own header.
type Alias struct {
	Name, Header string
}

// Type is the type of a field's value.
type Type uint8

// The types of values.
const (
	Uint32 Type = iota + 1
	Uint64
	Int64
	String
	Char
	Bool
)

// Class says who may see a field.
type Class uint8

// The classes of visibility.
const (
	All Class = iota + 1 // everybody, as /proc shows it to everybody
)
