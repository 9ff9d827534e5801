package config

import "strconv"

// Source is where a setting's value comes from.
type Source struct {
	// Kind is the source.
	Kind SourceKind
	// Name is the flag with its dashes, the variable, or the file's path.
	Name string
	// Line is where the key stands in the file, from 1; 0 for other kinds.
	Line int
}

// SourceKind is a kind of source.
type SourceKind uint8

// The kinds of sources, the lowest first. FromProgram is a field that a
// program set itself.
const (
	FromDefault SourceKind = iota
	FromTFConfig
	FromTensorFlow // a variable that TensorFlow's verbs extension had
	FromFile
	FromEnv
	FromFlag
	FromProgram
)

// String returns the source as a person looks for it: "flag --listen",
// "env TRYST_LISTEN", "file PATH:LINE", "TF_CONFIG", "default" or "program".
func (s Source) String() string {
	switch s.Kind {
	case FromFlag:
		return "flag " + s.Name
	case FromEnv, FromTensorFlow:
		return "env " + s.Name
	case FromFile:
		return "file " + s.place()
	case FromTFConfig:
		return tfConfigVariable
	case FromProgram:
		return "program"
	default:
		return "default"
	}
}

// place returns what an error about the source begins with: PATH:LINE of a
// file, without a line that is not known.
func (s Source) place() string {
	if s.Line > 0 {
		return s.Name + ":" + strconv.Itoa(s.Line)
	}
	return s.Name
}
