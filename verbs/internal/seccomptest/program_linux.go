package seccomptest

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Offsets in struct seccomp_data of linux/seccomp.h. The machine is little-endian: the lower half
// of an argument comes first.
const (
	offNumber    = 0
	offArch      = 4
	offArguments = 16
)

// x32 is set in the numbers of amd64's x32 calls, which share its architecture.
const x32 = 0x40000000

// maxJump and maxProgram are limits of a BPF program: of a conditional jump, and of the whole.
const (
	maxJump    = 255
	maxProgram = 4096
)

func load32(off uint32) syscall.SockFilter {
	return syscall.SockFilter{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, K: off}
}

func ret(value uint32) syscall.SockFilter {
	return syscall.SockFilter{Code: syscall.BPF_RET | syscall.BPF_K, K: value}
}

// unless skips n instructions unless the accumulator is k.
func unless(k uint32, n int) syscall.SockFilter {
	return syscall.SockFilter{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, K: k, Jf: uint8(n)} //nolint:gosec // at most maxJump
}

// when skips n instructions if the accumulator is k.
func when(k uint32, n int) syscall.SockFilter {
	return syscall.SockFilter{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, K: k, Jt: uint8(n)} //nolint:gosec // at most maxJump
}

func and(k uint32) syscall.SockFilter {
	return syscall.SockFilter{Code: syscall.BPF_ALU | syscall.BPF_AND | syscall.BPF_K, K: k}
}

// program returns the filter of a profile:
//
//	another architecture, or an x32 call: the process ends
//	for each call that has rules:
//	    unless the number is the call's, skip to the next call
//	    for each of its rules, in the order of the profile:
//	        for each argument: unless it matches, skip to the next rule
//	        return the rule's verdict
//	    return the default verdict
//	return the default verdict
func (p *profile) program() ([]syscall.SockFilter, error) {
	otherwise, err := verdict(p.DefaultAction, p.DefaultErrnoRet)
	if err != nil {
		return nil, err
	}
	blocks, order, err := p.blocks()
	if err != nil {
		return nil, err
	}
	program := []syscall.SockFilter{
		load32(offArch), when(arch, 1), ret(retKillProcess),
		load32(offNumber),
		{Code: syscall.BPF_JMP | syscall.BPF_JGE | syscall.BPF_K, K: x32, Jf: 1}, ret(retKillProcess),
	}
	for _, number := range order {
		block := append(blocks[number], ret(otherwise))
		if len(block) > maxJump {
			return nil, fmt.Errorf("system call %d has rules of %d instructions, more than %d", number, len(block), maxJump)
		}
		program = append(append(program, unless(number, len(block))), block...)
	}
	if program = append(program, ret(otherwise)); len(program) > maxProgram {
		return nil, fmt.Errorf("the filter has %d instructions, more than %d", len(program), maxProgram)
	}
	return program, nil
}

// blocks returns the instructions of the rules of each call, and the calls in the order in which
// the profile names them. Names that this architecture does not have are left out, as engines do.
func (p *profile) blocks() (map[uint32][]syscall.SockFilter, []uint32, error) {
	kernel, err := thisKernel()
	if err != nil {
		return nil, nil, err
	}
	table, err := parseNumbers(numbers)
	if err != nil {
		return nil, nil, err
	}
	blocks := make(map[uint32][]syscall.SockFilter)
	var order []uint32
	for i := range p.Syscalls {
		r := &p.Syscalls[i]
		if so, err := r.applies(kernel); err != nil {
			return nil, nil, err
		} else if !so {
			continue
		}
		code, err := r.code()
		if err != nil {
			return nil, nil, fmt.Errorf("the rule of %q: %w", r.Names, err)
		}
		for _, name := range r.Names {
			number, ok := table[name]
			if !ok {
				continue
			}
			if blocks[number] == nil {
				order = append(order, number)
			}
			blocks[number] = append(blocks[number], code...)
		}
	}
	return blocks, order, nil
}

// code returns the instructions that check the arguments of a rule and return its verdict. When an
// argument does not match, they continue behind their end.
func (r *rule) code() ([]syscall.SockFilter, error) {
	end, err := verdict(r.Action, r.ErrnoRet)
	if err != nil {
		return nil, err
	}
	code := []syscall.SockFilter{ret(end)}
	for _, a := range r.Args { // from the end, so that the distance to it is known
		check, err := a.code(len(code))
		if err != nil {
			return nil, err
		}
		code = append(check, code...)
	}
	return code, nil
}

// code returns the instructions that skip n more instructions when the argument does not match.
func (a *argument) code(n int) ([]syscall.SockFilter, error) {
	if a.Index > 5 {
		return nil, fmt.Errorf("there is no argument %d", a.Index)
	}
	mask, value := ^uint64(0), a.Value
	switch a.Op {
	case "SCMP_CMP_EQ", "SCMP_CMP_NE":
	case "SCMP_CMP_MASKED_EQ":
		mask, value = a.Value, a.ValueTwo
	default:
		return nil, fmt.Errorf("comparison %q is not supported", a.Op)
	}
	off := uint32(offArguments + 8*a.Index)
	lower := []syscall.SockFilter{load32(off), and(uint32(mask))} //nolint:gosec // the lower half
	upper := []syscall.SockFilter{load32(off + 4), and(uint32(mask >> 32))}
	if a.Op == "SCMP_CMP_NE" { // it matches as soon as one half differs
		upper = append(upper, when(uint32(value>>32), n))
		lower = append(lower, unless(uint32(value), len(upper))) //nolint:gosec // the lower half
	} else {
		upper = append(upper, unless(uint32(value>>32), n))
		lower = append(lower, unless(uint32(value), len(upper)+n)) //nolint:gosec // the lower half
	}
	return append(lower, upper...), nil
}

// parseNumbers reads a table of names and numbers.
func parseNumbers(text string) (map[string]uint32, error) {
	words := strings.Fields(text)
	table := make(map[string]uint32, len(words)/2)
	for i := 0; i+1 < len(words); i += 2 {
		number, err := strconv.ParseUint(words[i+1], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("system call %s: %w", words[i], err)
		}
		table[words[i]] = uint32(number)
	}
	return table, nil
}
