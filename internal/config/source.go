package config

import "strconv"

// Source is the source of a setting's value.
type Source struct {
	// Kind is the kind of source.
	Kind SourceKind
	// Name is the flag with its dashes, the variable, or the file's path.
	Name string
	// Line is the line of the key in the file, from 1; 0 for other kinds.
	Line int
}

// SourceKind is a kind of source.
type SourceKind uint8

// The kinds of sources, in ascending priority. FromProgram is a field that the program
// set itself.
const (
	FromDefault SourceKind = iota
	FromTFConfig
	FromTensorFlow // a variable of TensorFlow's verbs extension
	FromFile
	FromEnv
	FromFlag
	FromProgram
)

// String returns the source in the form in which a user finds it: "flag --listen",
// "env TRYST_LISTEN", "file PATH:LINE", "TF_CONFIG", "default" or "program".
func (s Source) String() string {
	switch s.Kind {
	case FromFlag:
		return "flag " + s.Name
	case FromEnv, FromTensorFlow:
		return "env " + s.Name
	case FromFile:
		return "file " + s.Place()
	case FromTFConfig:
		return TFConfig
	case FromProgram:
		return "program"
	default:
		return "default"
	}
}

// Place returns the prefix of errors: PATH:LINE of a file, or PATH if the line is not
// known, and the name of another source.
func (s Source) Place() string {
	if s.Line > 0 {
		return s.Name + ":" + strconv.Itoa(s.Line)
	}
	return s.Name
}
