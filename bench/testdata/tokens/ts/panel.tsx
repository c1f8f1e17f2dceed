import React, { useCallback, useEffect, useMemo, useRef, useState } from 'react'
import clsx from 'clsx'
import { fetchMetrics, type MetricPoint, type MetricQuery } from '../api/metrics'
import { formatDuration, formatPercent } from '../lib/format'
import styles from './LatencyPanel.module.css'

interface LatencyPanelProps {
  service: string
  refreshMs?: number
  onSelect?: (point: MetricPoint | null) => void
}

const WINDOWS = [
  { label: '15m', seconds: 900 },
  { label: '1h', seconds: 3600 },
  { label: '24h', seconds: 86400 },
] as const

export function LatencyPanel({ service, refreshMs = 15000, onSelect }: LatencyPanelProps) {
  const [windowIndex, setWindowIndex] = useState(0)
  const [points, setPoints] = useState<MetricPoint[]>([])
  const [error, setError] = useState<Error | undefined>()
  const [loading, setLoading] = useState(true)
  const requestId = useRef(0)

  const load = useCallback(async () => {
    const current = ++requestId.current
    const query: MetricQuery = { service, metric: 'http_request_duration_seconds', window: WINDOWS[windowIndex].seconds }
    try {
      const result = await fetchMetrics(query)
      if (current !== requestId.current) return // a newer request is on its way
      setPoints(result.points)
      setError(undefined)
    } catch (e) {
      if (current === requestId.current) setError(e as Error)
    } finally {
      setLoading(false)
    }
  }, [service, windowIndex])

  useEffect(() => {
    load()
    const id = window.setInterval(load, refreshMs)
    return () => window.clearInterval(id)
  }, [load, refreshMs])

  const summary = useMemo(() => {
    if (points.length === 0) return null
    const sorted = points.map((p) => p.value).sort((a, b) => a - b)
    const at = (q: number) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]
    const errors = points.reduce((sum, p) => sum + p.errors, 0)
    const total = points.reduce((sum, p) => sum + p.count, 0)
    return { p50: at(0.5), p95: at(0.95), p99: at(0.99), errorRate: total ? errors / total : 0 }
  }, [points])

  if (error) {
    return (
      <section className={clsx(styles.panel, styles.failed)} role="alert">
        <h3>{service}</h3>
        <p>Could not load metrics: {error.message}</p>
        <button type="button" onClick={load}>Try again</button>
      </section>
    )
  }

  return (
    <section className={styles.panel} aria-busy={loading}>
      <header className={styles.header}>
        <h3>{service}</h3>
        <nav>
          {WINDOWS.map((w, i) => (
            <button
              key={w.label}
              className={clsx(styles.tab, i === windowIndex && styles.active)}
              aria-pressed={i === windowIndex}
              onClick={() => setWindowIndex(i)}
            >
              {w.label}
            </button>
          ))}
        </nav>
      </header>
      {summary && (
        <dl className={styles.grid}>
          <div><dt>p50</dt><dd>{formatDuration(summary.p50)}</dd></div>
          <div><dt>p95</dt><dd>{formatDuration(summary.p95)}</dd></div>
          <div><dt>p99</dt><dd data-slow={summary.p99 > 1 || undefined}>{formatDuration(summary.p99)}</dd></div>
          <div><dt>errors</dt><dd>{formatPercent(summary.errorRate)}</dd></div>
        </dl>
      )}
      <Sparkline points={points} height={48} onHover={(p) => onSelect?.(p ?? null)} />
    </section>
  )
}

function Sparkline(props: { points: MetricPoint[]; height: number; onHover?: (p?: MetricPoint) => void }) {
  const { points, height, onHover } = props
  const max = Math.max(...points.map((p) => p.value), 0.001)
  const step = 100 / Math.max(1, points.length - 1)
  const d = points.map((p, i) => `${i ? 'L' : 'M'}${(i * step).toFixed(2)},${(height - (p.value / max) * height).toFixed(2)}`).join(' ')
  return (
    <svg viewBox={`0 0 100 ${height}`} preserveAspectRatio="none" onMouseLeave={() => onHover?.()}>
      <path d={d} fill="none" stroke="currentColor" strokeWidth={1.5} vectorEffect="non-scaling-stroke" />
    </svg>
  )
}

export default React.memo(LatencyPanel)
