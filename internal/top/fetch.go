package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// Client fetches the status of processes.
type Client struct{ HTTP *http.Client }

// Fetch fetches the status of a process at its metrics address: HOST:PORT, PORT of this host, or a URL.
func (c Client) Fetch(ctx context.Context, address string) Fetched {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	s, err := c.fetch(ctx, address)
	return Fetched{Address: address, Time: time.Now(), Status: s, Err: err}
}

func (c Client) fetch(ctx context.Context, address string) (*statusapi.Status, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, urlOf(address), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, errors.New("the server there has no " + statusapi.Path + ": it is no Tryst process, or an earlier release; give the address of --metrics-address")
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s", resp.Status, clean(strings.TrimSpace(string(body[:min(len(body), 200)]))))
	}
	return parse(body)
}

// parse parses a status.
func parse(body []byte) (*statusapi.Status, error) {
	s := new(statusapi.Status)
	if err := json.Unmarshal(body, s); err != nil {
		return nil, fmt.Errorf("the answer is no status: %w", err)
	}
	if s.Version != statusapi.Version {
		return nil, fmt.Errorf("the status has version %d, and this command knows %d: use the command of the same release", s.Version, statusapi.Version)
	}
	return s, nil
}

func urlOf(address string) string {
	switch {
	case strings.Contains(address, "://"):
		return strings.TrimSuffix(address, "/") + statusapi.Path
	case !strings.Contains(address, ":"):
		return "http://" + net.JoinHostPort("127.0.0.1", address) + statusapi.Path
	case strings.HasPrefix(address, ":"):
		address = "127.0.0.1" + address
	}
	return "http://" + address + statusapi.Path
}

// withoutURL takes the URL out of an error, since the address is beside it.
func withoutURL(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", fetchTimeout)
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
