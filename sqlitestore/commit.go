package sqlitestore

import (
	"context"

	"github.com/teamchan/team"
)

// Commit does all the appends, then all the changes, in the order of the arguments,
// in one transaction. Each sees what those before it did.
func (s *Store) Commit(ctx context.Context, appends []team.Batch, changes []team.Change) (team.Committed, error) {
	size := 0
	for _, b := range appends {
		n, err := checkItems(b.Queue, b.Items)
		if err != nil {
			return team.Committed{}, err
		}
		size += n
	}
	for _, c := range changes {
		if err := checkKey(c.Key); err != nil {
			return team.Committed{}, err
		}
		if err := checkSize("bytes of one record", len(c.Value)); err != nil {
			return team.Committed{}, err
		}
		size += len(c.Value)
	}
	var done team.Committed
	err := s.do(&op{ctx: ctx, size: size, late: true, run: func(t *tx) (err error) {
		done = team.Committed{
			Receipts: make([][]team.Receipt, len(appends)),
			Versions: make([]team.Version, len(changes)),
		}
		for i, b := range appends {
			if done.Receipts[i], err = t.append(b.Queue, b.Items, b.Max); err != nil {
				return err
			}
		}
		for i, c := range changes {
			if c.Delete {
				err = t.delete(c.Key, c.Prev)
			} else {
				done.Versions[i], err = t.put(c.Key, c.Value, c.Prev)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}})
	if err != nil {
		return team.Committed{}, err
	}
	return done, nil
}
