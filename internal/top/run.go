package top

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Run shows the processes until the user quits or ctx ends.
func Run(ctx context.Context, c Client, addresses []string, in io.Reader, out io.Writer, env []string) error {
	ctx, cancel := context.WithCancel(ctx)
	program := tea.NewProgram(shell{New(addresses)}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(env), tea.WithoutSignalHandler())
	var fetchers sync.WaitGroup
	for _, a := range addresses {
		fetchers.Go(func() { fetchAll(ctx, c, a, program.Send) })
	}
	_, err := program.Run()
	cancel()
	fetchers.Wait()
	if ctx.Err() != nil && err == tea.ErrProgramKilled { //nolint:errorlint // the end of ctx, as asked
		return nil
	}
	return err
}

// fetchAll sends the status of a process again and again, until ctx ends.
func fetchAll(ctx context.Context, c Client, address string, send func(tea.Msg)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if f := c.Fetch(ctx, address); ctx.Err() == nil {
			send(f)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// shell is the Model as bubbletea takes it.
type shell struct{ m Model }

// Init implements tea.Model.
func (shell) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (s shell) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.KeyPressMsg:
		s.m = s.m.Update(Key(message.String()))
	case tea.WindowSizeMsg:
		s.m = s.m.Update(Size{message.Width, message.Height})
	case Fetched:
		s.m = s.m.Update(message)
	}
	if s.m.Done() {
		return s, tea.Quit
	}
	return s, nil
}

// View implements tea.Model.
func (s shell) View() tea.View {
	v := tea.NewView(strings.Join(s.m.Lines(), "\n"))
	v.AltScreen = true
	return v
}

// Once returns a Model that has asked each process once.
func Once(ctx context.Context, c Client, addresses []string) Model {
	m := New(addresses)
	results := make(chan Fetched, len(addresses))
	for _, a := range addresses {
		go func() { results <- c.Fetch(ctx, a) }()
	}
	for range addresses {
		m = m.Update(<-results)
	}
	return m
}
