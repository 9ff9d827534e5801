// Package fileio is what the file formats share: the class of an input/output
// error, foreign text in messages, whole writes, and files mapped into memory.
package fileio

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/tryst-rdma/tryst/status"
)

// maxQuoted is how many bytes of a foreign text a message repeats: enough to
// recognise it, few enough that a hostile name does not fill a log.
const maxQuoted = 120

// Quote returns s in quotes for a message, cut when it is long.
func Quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:maxQuoted]) + "... (" + strconv.Itoa(len(s)) + " bytes)"
}

// Code returns the class of an error of a reader, a writer or the file system:
// DataLoss for an end that came too early, ResourceExhausted for a full disk.
func Code(err error) status.Code {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.NotFound
	case errors.Is(err, fs.ErrPermission):
		return status.PermissionDenied
	case errors.Is(err, fs.ErrClosed):
		return status.FailedPrecondition
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return status.ResourceExhausted
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return status.DataLoss
	}
	return status.CodeOf(err)
}

// Wrap returns err with what was being done in front of it, and with the class
// that Code says unless it has one of its own.
func Wrap(what string, err error) *status.Error {
	if _, ok := errors.AsType[*status.Error](err); ok {
		return status.From(err).WithPrefix(what)
	}
	return status.Errorf(Code(err), "%s: %w", what, err)
}

// ReadAt fills p from offset off of r, or says why it could not.
func ReadAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil // at the end of a file a full read may come with io.EOF
	case err == nil, errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return Wrap("reading "+strconv.Itoa(len(p))+" bytes at offset "+strconv.FormatInt(off, 10), err)
}

// Write writes all of p to w, or says why it could not.
func Write(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	switch {
	case err == nil && n == len(p):
		return nil
	case err == nil:
		err = io.ErrShortWrite
	}
	return Wrap("writing "+strconv.Itoa(len(p))+" bytes", err)
}
