// Package frame is the language between the two ends of the VM's one serial port: the host, which says what to run, and the guest's
// agent, which runs it. A frame is
//
//	kind     1 byte
//	length   4 bytes, big-endian, at most [MaxPayload]
//	payload  length bytes
//
// and the talk goes
//
//	guest                            host
//	Alive   the kernel runs, modules in
//	Ready   file systems, devices made
//	                                 Run     a Command
//	                                 Input   its standard input, an empty one ends it (any number)
//	                                 Size    the terminal has another size (any number)
//	                                 Signal  to the command's process group (any number)
//	Output, Errors (any number)
//	Exit    a Result
//	                                 Run ... or the port's end: power off
//	Failed  in place of any of the guest's: words on why it gives up
//
// Output comes before the Exit that it belongs to, since both take the same port: nothing of a command is lost, and the next
// command's output is not taken for this one's.
package frame

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Kind says what the payload of a frame is.
type Kind byte

// The kinds; see the package comment for who says them and when.
const (
	Alive  Kind = 'A' // no payload
	Ready  Kind = 'R' // no payload
	Run    Kind = 'C' // a Command
	Input  Kind = 'I' // bytes; none: the end of the input
	Size   Kind = 'W' // a WindowSize
	Signal Kind = 'K' // one byte, the signal's number
	Output Kind = 'O' // bytes
	Errors Kind = 'E' // bytes
	Exit   Kind = 'X' // a Result
	Failed Kind = 'F' // words
)

// MaxPayload is the most bytes that one frame carries: more than a pipe holds, and small enough to allocate without a thought.
const MaxPayload = 256 << 10

// headerSize is the bytes before the payload.
const headerSize = 1 + 4

// Command is what the agent runs.
type Command struct {
	Args []string `json:"args"` // the program, looked up in the environment's PATH, and its arguments
	Dir  string   `json:"dir"`  // absolute
	Env  []string `json:"env"`  // NAME=value, the whole environment
	// Terminal, when not nil, gives the command a terminal of that size; its output and errors then both come as Output.
	Terminal *WindowSize `json:"terminal,omitempty"`
}

// WindowSize is a terminal's size in characters.
type WindowSize struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Result is how a command ended.
type Result struct {
	// Status is the exit status; 128 and the signal's number when a signal ended it, as a shell says it; 127 when it did not start.
	Status int `json:"status"`
	// Reason is why the command did not start or how it was ended, "" when it exited by itself.
	Reason string `json:"reason,omitempty"`
}

// Write writes one frame, in one Write call, so that frames of several writers stay whole when they share a lock.
// The payload is read until it returns.
func Write(w io.Writer, kind Kind, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("frame %q of %d bytes: at most %d fit", kind, len(payload), MaxPayload)
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

// Read reads one frame. The payload is the caller's. It ends with io.EOF between frames and io.ErrUnexpectedEOF within one.
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
		return 0, nil, fmt.Errorf("frame %q says %d bytes: at most %d may come", kind, size, MaxPayload)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		if err == io.EOF { // It would read as an end between frames.
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
