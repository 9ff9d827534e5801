package server

import (
	"context"
	"errors"
	"slices"
)

// part is a part of a process. Either function may be nil: some parts start with another one, others
// end by themselves.
type part struct {
	name  string
	start func(context.Context) error
	stop  func(context.Context) error
}

// parts are the parts of a process that have started, in their order.
type parts []part

// start starts parts in their order, until one fails.
func (p *parts) start(ctx context.Context, all ...part) error {
	for _, one := range all {
		if one.start != nil {
			if err := one.start(ctx); err != nil {
				return err
			}
		}
		*p = append(*p, one)
	}
	return nil
}

// stop stops the parts that have started, the last one first. When ctx ends it cuts off what still works.
func (p *parts) stop(ctx context.Context) error {
	var errs []error
	for _, one := range slices.Backward(*p) {
		if one.stop != nil {
			errs = append(errs, one.stop(ctx))
		}
	}
	*p = nil
	return errors.Join(errs...)
}
