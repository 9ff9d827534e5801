package libibverbs

import (
	"errors"
	"syscall"
	"testing"
)

func TestReturnConventions(t *testing.T) {
	const leftBehind = syscall.EAGAIN
	for _, c := range []struct {
		name string
		got  error
		want error
	}{
		{"a pointer", pointerOrErrno(false, nil), nil},
		{"a pointer, and errno from before", pointerOrErrno(false, leftBehind), nil},
		{"NULL and errno", pointerOrErrno(true, syscall.ENOSYS), syscall.ENOSYS},
		{"NULL and no errno", pointerOrErrno(true, nil), errNoReason},

		{"0", zeroOrErrno(0, nil), nil},
		{"0, and errno from before", zeroOrErrno(0, leftBehind), nil},
		{"a positive number", zeroOrErrno(int(syscall.ENOMEM), nil), syscall.ENOMEM},
		{"a positive number, and errno from before", zeroOrErrno(int(syscall.EINVAL), leftBehind), syscall.EINVAL},
		{"a negative number", zeroOrErrno(-int(syscall.EINVAL), nil), syscall.EINVAL},
		{"a negative number, and errno from before", zeroOrErrno(-int(syscall.EINVAL), leftBehind), syscall.EINVAL},
		{"-1 and errno", zeroOrErrno(-1, syscall.EIO), syscall.EIO},
		{"-1 and no errno", zeroOrErrno(-1, nil), syscall.EPERM},

		{"0 of 0 or -1", zeroOrMinusOne(0, leftBehind), nil},
		{"-1 of 0 or -1", zeroOrMinusOne(-1, syscall.EAGAIN), syscall.EAGAIN},
		{"-1 of 0 or -1, and no errno", zeroOrMinusOne(-1, nil), errNoReason},
	} {
		if !errors.Is(c.got, c.want) || (c.want == nil) != (c.got == nil) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	for _, c := range []struct {
		rc   int64
		n    int
		want error
	}{{0, 0, nil}, {17, 17, nil}, {-1, 0, errNoReason}, {-int64(syscall.EOPNOTSUPP), 0, syscall.EOPNOTSUPP}} {
		n, err := countOrNegative(c.rc)
		if n != c.n || !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("countOrNegative(%d) = %d, %v; want %d, %v", c.rc, n, err, c.n, c.want)
		}
	}
}
