// Package frame is the protocol of the VM's serial port. The host sends commands, and the guest's
// agent runs them. A frame is
//
//	kind     1 byte
//	length   4 bytes, big-endian, at most [MaxPayload]
//	payload  length bytes
//
// The order of frames is
//
//	guest                            host
//	Alive   kernel and modules run
//	Ready   file systems and devices are set up
//	                                 Run     a Command
//	                                 Input   its standard input; an empty one ends it (any number)
//	                                 Size    a new size of the terminal (any number)
//	                                 Signal  for the command's process group (any number)
//	Output, Errors (any number)
//	Exit    a Result
//	                                 Run ... or the end of the port: power off
//	Failed  instead of any other frame of the guest: a text that says why it ends
//
// All output of a command comes before its Exit on the same port. So none is lost, and none is
// attributed to the next command.
package frame

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Kind is the kind of a frame, which determines its payload.
type Kind byte

// The kinds. The package comment has their sender and order.
const (
	Alive  Kind = 'A' // no payload
	Ready  Kind = 'R' // no payload
	Run    Kind = 'C' // a Command
	Input  Kind = 'I' // bytes; without any, the end of the input
	Size   Kind = 'W' // a WindowSize
	Signal Kind = 'K' // one byte, the signal's number
	Output Kind = 'O' // bytes
	Errors Kind = 'E' // bytes
	Exit   Kind = 'X' // a Result
	Failed Kind = 'F' // text
)

// MaxPayload is the largest payload in bytes: more than a pipe holds, and small enough to allocate
// for each frame.
const MaxPayload = 256 << 10

// headerSize is the number of bytes before the payload.
const headerSize = 1 + 4

// Command is what the agent runs.
type Command struct {
	Args []string `json:"args"` // the program, looked up in the environment's PATH, and its arguments
	Dir  string   `json:"dir"`  // absolute
	Env  []string `json:"env"`  // NAME=value, the whole environment
	// Terminal, if not nil, gives the command a terminal of that size. Its errors then come as
	// Output, too.
	Terminal *WindowSize `json:"terminal,omitempty"`
}

// WindowSize is a terminal's size in characters.
type WindowSize struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Result is how a command ended.
type Result struct {
	// Status is the exit status. As in a shell, it is 128 plus the number of the signal that ended
	// the command, and 127 if the command did not start.
	Status int `json:"status"`
	// Reason is why the command did not start, or how it was ended; "" if it exited by itself.
	Reason string `json:"reason,omitempty"`
}

// Write writes one frame with one call of w.Write, so that writers that share a lock do not mix their
// frames. It does not keep the payload.
func Write(w io.Writer, kind Kind, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("frame %q has a payload of %d bytes: the limit is %d", kind, len(payload), MaxPayload)
	}
	buf := make([]byte, headerSize, headerSize+len(payload))
	buf[0] = byte(kind)
	binary.BigEndian.PutUint32(buf[1:], uint32(len(payload)))
	_, err := w.Write(append(buf, payload...))
	return err
}

// WriteJSON writes a frame whose payload is v in JSON.
func WriteJSON(w io.Writer, kind Kind, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Write(w, kind, payload)
}

// Read reads one frame. The caller owns the payload. The error is io.EOF at an end between frames,
// and io.ErrUnexpectedEOF at an end within a frame.
func Read(r io.Reader) (Kind, []byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	kind, size := Kind(head[0]), binary.BigEndian.Uint32(head[1:])
	if !kind.known() {
		return 0, nil, fmt.Errorf("frame of unknown kind %q", kind)
	}
	if size > MaxPayload {
		return 0, nil, fmt.Errorf("frame %q announces %d bytes: the limit is %d", kind, size, MaxPayload)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		if err == io.EOF { // an end after the header is not an end between frames
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, payload, nil
}

func (k Kind) known() bool {
	switch k {
	case Alive, Ready, Run, Input, Size, Signal, Output, Errors, Exit, Failed:
		return true
	}
	return false
}

// Decode reads the JSON payload of a frame into v.
func Decode(kind Kind, payload []byte, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("frame %q: %w", kind, err)
	}
	return nil
}
