internal import Jobs
internal import Synchronization
internal import Waiting

/// Has variants rendered for requests: equal ones once for all who ask, so many at a time as there are threads, the
/// others in the order of their priority. A rendering that nobody waits for any more is stopped.
///
/// In comes what is wanted of an image, out go its bytes: kept ones, else rendered on the decode threads.
final class Variants: Sendable {
  typealias Outcome = VariantQueue.Outcome

  let rendering: VariantRendering
  let renditions: RenditionCache
  private let threads: any ComputeThreads
  private let metrics: JobMetrics
  private let queue: Mutex<VariantQueue>
  /// Placeholders lately asked for: a page of images that are all on their way asks for the same one many times.
  private let placeholders = ImageMemory(capacity: 4 << 20)

  init(
    _ rendering: VariantRendering, renditions: RenditionCache, threads: any ComputeThreads,
    metrics: JobMetrics, queue: VariantQueue
  ) {
    self.rendering = rendering
    self.renditions = renditions
    self.threads = threads
    self.metrics = metrics
    self.queue = Mutex(queue)
  }

  /// The rendition's bytes: kept ones, or rendered now.
  ///
  /// - Parameter keeping: whether the cache may be used. What others ask for at the same time is kept if they may.
  /// - Throws: `.renderingsFull`, `.imageGone`, `.unrenderable`; `.draining` once closed; `.abandoned` when the task
  ///   was cancelled.
  func bytes(
    of rendition: Rendition, at priority: Priority, keeping: Bool
  ) async throws(JobsError) -> StoredBytes {
    if keeping, let kept = await renditions.bytes(of: rendition) {
      metrics.variant(rendition.variant.format, .hit)
      return kept
    }
    return try await wait(for: rendition, at: priority, keeping).get()
  }

  /// Sees to it that a job's variant is there: rendered now, outside the queue, unless it is kept or made already.
  ///
  /// - Parameters:
  ///   - made: its bytes, where the image's decode made them.
  ///   - content: the image's bytes, where nobody can open it yet.
  /// - Returns: how many bytes it has.
  /// - Throws: as ``bytes(of:at:keeping:)``.
  func make(
    _ rendition: Rendition, made: [UInt8]?, of content: [UInt8]?, keeping: Bool
  ) async throws(JobsError) -> Int {
    if keeping, let kept = await renditions.bytes(of: rendition) { return kept.count }
    let bytes: [UInt8]
    if let made {
      bytes = made
    } else {
      let start = ContinuousClock.now
      bytes = try await rendering.bytes(of: rendition, content: content)
      metrics.rendered(rendition.variant.format, in: start.duration(to: .now))
    }
    if keeping, renditions.takes(bytes.count) { await renditions.keep(bytes, of: rendition) }
    return bytes.count
  }

  /// The bytes of a placeholder's rendition, which is kept in memory alone.
  /// - Throws: as ``bytes(of:at:keeping:)``.
  func placeholder(
    _ rendition: Rendition, at priority: Priority
  ) async throws(JobsError) -> StoredBytes {
    let name = rendition.digest
    if let bytes = placeholders.bytes(of: name) { return StoredBytes(bytes) }
    let stored = try await bytes(of: rendition, at: priority, keeping: false)
    if case .memory(let bytes) = stored.place { placeholders.insert(bytes, as: name) }
    return stored
  }

  /// Renderings under way and such that wait, and how long the oldest one has taken so far.
  var load: (rendering: Int, waiting: Int, oldest: Duration) {
    queue.withLock { queue in
      let oldest = queue.oldest.map { $0.duration(to: .now) }
      return (queue.rendering, queue.waiting, oldest ?? .zero)
    }
  }

  /// Renders nothing any more; returns once what was under way has ended.
  func close() async {
    let (waiters, tasks) = queue.withLock { $0.close() }
    for waiter in waiters { waiter.continuation.resume(returning: .failure(.draining)) }
    for task in tasks { task.cancel() }
    for task in tasks { await task.value }
  }

  // MARK: Waiting

  private func wait(
    for rendition: Rendition, at priority: Priority, _ keeps: Bool
  ) async -> Outcome {
    let (me, id) = (queue.withLock { $0.number() }, rendition.id)
    return await withCancellation {
      await withCheckedContinuation { continuation in
        let waiter = VariantQueue.Waiter(
          priority: priority, keeps: keeps, continuation: continuation)
        if let answer = enter(rendition, me, waiter) { continuation.resume(returning: answer) }
      }
    } onCancel: {
      leave(me, id, rendition.variant.format)
    }
  }

  /// - Returns: nil when the outcome comes later, by the waiter's continuation.
  private func enter(
    _ rendition: Rendition, _ me: UInt64, _ waiter: VariantQueue.Waiter
  ) -> Outcome? {
    queue.withLock { queue in
      // Looked at under the lock: a cancellation from here on finds the waiter.
      if Task.isCancelled { return .failure(.abandoned) }
      if queue.isClosed { return .failure(.draining) }
      let entry = queue.enter(rendition, me, waiter) { threads.lane(at: $0) }
      switch entry {
      case .added:
        startNext(&queue)
        return nil
      case .joined:
        metrics.variant(rendition.variant.format, .joined)
        return nil
      case .told(let outcome):
        metrics.variant(rendition.variant.format, .joined)
        return outcome
      case .refused:
        metrics.variant(rendition.variant.format, .refused)
        return .failure(.renderingsFull)
      }
    }
  }

  private func leave(_ me: UInt64, _ id: CacheEntry.ID, _ format: OutputFormat) {
    let left = queue.withLock { $0.leave(me, id) }
    if left.isForgotten { metrics.variant(format, .abandoned) }
    left.task?.cancel()
    left.waiter?.continuation.resume(returning: .failure(.abandoned))
  }

  // MARK: Rendering

  private func startNext(_ queue: inout VariantQueue) {
    queue.startNext { number, work in
      Task(executorPreference: work.lane) { await self.carryOut(number, work.rendition) }
    }
  }

  private func carryOut(_ number: UInt64, _ rendition: Rendition) async {
    // An equal one may have ended since this one's first look.
    if keeps(number), let kept = await renditions.bytes(of: rendition) {
      metrics.variant(rendition.variant.format, .hit)
      finish(number, .success(kept), isBeingKept: false)
    } else {
      await render(number, rendition)
    }
    queue.withLock { queue in
      queue.end(number)
      startNext(&queue)
    }
  }

  private func render(_ number: UInt64, _ rendition: Rendition) async {
    let start = ContinuousClock.now
    let format = rendition.variant.format
    do throws(JobsError) {
      let bytes = try await rendering.bytes(of: rendition)
      metrics.rendered(format, in: start.duration(to: .now))
      let isBeingKept = keeps(number) && renditions.takes(bytes.count)
      finish(number, .success(StoredBytes(bytes)), isBeingKept: isBeingKept)
      if isBeingKept { await renditions.keep(bytes, of: rendition) }
    } catch {
      metrics.variant(format, error == .abandoned ? .abandoned : .failed)
      finish(number, .failure(error), isBeingKept: false)
    }
  }

  private func keeps(_ number: UInt64) -> Bool { queue.withLock { $0.keeps(number) } }

  private func finish(_ number: UInt64, _ outcome: Outcome, isBeingKept: Bool) {
    let waiters = queue.withLock { queue in
      defer { startNext(&queue) }
      return queue.finish(number, outcome, isBeingKept: isBeingKept)
    }
    for waiter in waiters { waiter.continuation.resume(returning: outcome) }
  }
}
