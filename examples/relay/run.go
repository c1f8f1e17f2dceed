package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/teamchan/team"
	"github.com/teamchan/team/examples/relay/survey"
)

// carryOut is a run whose specialists are functions.
func carryOut(ctx context.Context, g ground, fresh bool, out *console) error {
	return runOn(ctx, g, "", fresh, out, func(ctx context.Context, r *relay, doc *document) error {
		began := time.Now()
		files, err := survey.Open(ctx, g.workspace)
		if err != nil {
			return err
		}
		r.tree, doc.Scan = files, files.Facts()
		out.head(*doc, time.Since(began))
		result, err := r.run(ctx)
		if err != nil {
			return err
		}
		doc.Plan = result.plan.Path
		doc.Tasks = append(doc.Tasks, result.tasks...)
		doc.Endings = append(doc.Endings, result.endings...)
		doc.LongReply = r.longReply(result)
		doc.Account, err = r.account(ctx, result)
		return err
	})
}

// runOn begins a run, or carries on with one of the same server, lets the team work, and
// shows what comes of it.
func runOn(ctx context.Context, g ground, server string, fresh bool, out *console,
	work func(context.Context, *relay, *document) error,
) (err error) {
	j, err := begin(ctx, g.store, server, fresh, out.printf)
	if err != nil {
		return stopped(ctx, err)
	}
	held, letGo := j.hold(ctx)
	defer func() { err = j.end(ctx, held, err, letGo) }()
	if j.resumed {
		out.printf("carries on with the run of %s: %s\n\n", j.name(), j.progress())
	}
	out.printf("workspace  %s\n", shown(g.workspace))

	offloadDir, err := team.OffloadDir(g.workspace)
	if err != nil {
		return err
	}
	offload, err := team.OpenOffload(held, offloadDir, g.store, &team.OffloadOptions{Trace: g.trace})
	if err != nil {
		return err
	}
	defer offload.Close()
	signals, err := team.OpenSignals(held, g.store, &team.SignalOptions{
		Epoch: j.session(), Lease: lease, MaxAttempts: team.NoLimit, Offload: offload, Trace: g.trace,
	})
	if err != nil {
		return err
	}
	r := &relay{board: g.board, signals: signals, offload: offload, session: j.session(), journal: j, patience: 2 * time.Minute}
	r.log = &timeline{started: time.Now(), base: filepath.Join(g.board.Dir(), r.session)}
	r.log.show = func(e event) { out.event(e, r.log.relative) }
	doc := document{
		Workspace: g.workspace, Board: g.board.Dir(), Session: r.session, Started: j.started(), Resumed: j.resumed,
		Scan: survey.Facts{Gaps: []string{}}, Tasks: []survey.Task{}, Endings: []ending{},
	}
	if err := work(held, r, &doc); err != nil {
		return err
	}
	doc.ElapsedMS = float64(time.Since(r.log.started).Microseconds()) / 1e3
	doc.Events = append([]event{}, r.log.events...)
	out.tail(doc, r.log.relative)
	if out.err != nil {
		return out.err // nobody has seen it: the next start shows it again
	}
	if err := r.finish(held); err != nil {
		return err
	}
	_, _ = offload.Collect(held, nil) // what it leaves, the next one finds again
	return nil
}

// stopped says in our words that err is there since somebody stopped us.
func stopped(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}
