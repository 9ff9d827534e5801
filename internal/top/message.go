package top

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// Fetched is the message that a request to a process has ended.
type Fetched struct {
	Address string
	Time    time.Time
	Status  *statusapi.Status // nil with an error
	Err     error
}

// Key is the message that a key was pressed, by its name: "q", "up", "pgdown", "enter", "esc", "backspace".
type Key string

// Size is the message that the screen has a size.
type Size struct{ Width, Height int }
