import { EventEmitter } from "node:events";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";

export type JobState = "queued" | "running" | "done" | "failed";

export interface Job<T = unknown> {
  readonly id: string;
  readonly kind: string;
  payload: T;
  state: JobState;
  attempts: number;
  createdAt: number;
  lastError?: string;
}

export interface QueueOptions {
  directory: string;
  concurrency?: number;
  maxAttempts?: number;
  backoff?: (attempt: number) => number;
}

type Handler<T> = (job: Job<T>, signal: AbortSignal) => Promise<void>;

const defaultBackoff = (attempt: number): number => Math.min(30_000, 250 * 2 ** attempt);

/** A small durable queue: one JSON file, one process. */
export class JobQueue extends EventEmitter {
  private readonly jobs = new Map<string, Job>();
  private readonly handlers = new Map<string, Handler<any>>();
  private running = 0;
  private closed = false;
  private timer: ReturnType<typeof setTimeout> | null = null;

  constructor(private readonly options: QueueOptions) {
    super();
    if (options.concurrency !== undefined && options.concurrency < 1) {
      throw new RangeError(`concurrency must be positive, got ${options.concurrency}`);
    }
  }

  static async open(options: QueueOptions): Promise<JobQueue> {
    const queue = new JobQueue(options);
    try {
      const text = await readFile(queue.file, "utf8");
      for (const job of JSON.parse(text) as Job[]) {
        // A job that was running when we died is tried again.
        if (job.state === "running") job.state = "queued";
        queue.jobs.set(job.id, job);
      }
    } catch (err) {
      if ((err as NodeJS.ErrnoException).code !== "ENOENT") throw err;
    }
    return queue;
  }

  private get file(): string {
    return join(this.options.directory, "jobs.json");
  }

  handle<T>(kind: string, handler: Handler<T>): this {
    if (this.handlers.has(kind)) throw new Error(`duplicate handler for "${kind}"`);
    this.handlers.set(kind, handler);
    this.schedule(0);
    return this;
  }

  async add<T>(kind: string, payload: T, id: string = crypto.randomUUID()): Promise<Job<T>> {
    const existing = this.jobs.get(id);
    if (existing) return existing as Job<T>;
    const job: Job<T> = { id, kind, payload, state: "queued", attempts: 0, createdAt: Date.now() };
    this.jobs.set(id, job);
    await this.save();
    this.schedule(0);
    return job;
  }

  stats(): Record<JobState, number> {
    const counts: Record<JobState, number> = { queued: 0, running: 0, done: 0, failed: 0 };
    for (const { state } of this.jobs.values()) counts[state] += 1;
    return counts;
  }

  private schedule(delay: number): void {
    if (this.closed || this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      void this.pump();
    }, delay);
  }

  private async pump(): Promise<void> {
    const limit = this.options.concurrency ?? 4;
    for (const job of this.jobs.values()) {
      if (this.running >= limit) break;
      const handler = this.handlers.get(job.kind);
      if (job.state !== "queued" || !handler) continue;
      this.running++;
      this.run(job, handler).finally(() => {
        this.running--;
        this.schedule(0);
      });
    }
  }

  private async run(job: Job, handler: Handler<unknown>): Promise<void> {
    const controller = new AbortController();
    job.state = "running";
    job.attempts += 1;
    await this.save();
    try {
      await handler(job, controller.signal);
      job.state = "done";
      delete job.lastError;
      this.emit("done", job);
    } catch (error) {
      job.lastError = error instanceof Error ? error.message : String(error);
      const exhausted = job.attempts >= (this.options.maxAttempts ?? 5);
      job.state = exhausted ? "failed" : "queued";
      this.emit(exhausted ? "failed" : "retry", job, error);
      if (!exhausted) this.schedule((this.options.backoff ?? defaultBackoff)(job.attempts));
    }
    await this.save();
  }

  private async save(): Promise<void> {
    const temporary = `${this.file}.${process.pid}.tmp`;
    await writeFile(temporary, JSON.stringify([...this.jobs.values()], null, 2));
    await rename(temporary, this.file);
  }
}
