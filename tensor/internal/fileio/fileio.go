// Package fileio has what the file formats share: codes of input/output errors,
// quoting of foreign text, complete reads and writes, and memory-mapped files.
package fileio

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/tryst-rdma/tryst/status"
)

// Quote quotes s for a message and cuts it after maxQuoted bytes.
func Quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:maxQuoted]) + "... (" + strconv.Itoa(len(s)) + " bytes)"
}

// Code returns the status code for an error of a reader, a writer or the file
// system: DataLoss for an unexpected end of file, ResourceExhausted for a full
// disk.
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

// Wrap returns err with the prefix what, which names the operation. The code is
// that of err if it is a *status.Error, else that of Code.
func Wrap(what string, err error) *status.Error {
	if _, ok := errors.AsType[*status.Error](err); ok {
		return status.From(err).WithPrefix(what)
	}
	return status.Errorf(Code(err), "%s: %w", what, err)
}

// ReadAt reads len(p) bytes at offset off of r, or returns an error.
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

// Write writes all of p to w, or returns an error.
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
