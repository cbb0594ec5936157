internal import Jobs
internal import Synchronization
internal import Waiting

/// Renders variants on request. Equal requests share one rendering, and the variants of one image share a decode.
///
/// Input: the renditions to get. Output: their bytes, stored ones or rendered now on the decode threads. A limited
/// number of decodes run at a time; the other requests wait in ``VariantQueue``. A rendering stops when no request
/// waits for it any more.
final class Variants: Sendable {
  typealias Outcome = VariantQueue.Outcome

  let rendering: VariantRendering
  let renditions: RenditionCache
  private let threads: any ComputeThreads
  let metrics: JobMetrics
  private let queue: Mutex<VariantQueue>
  private let now: WallClock
  /// Recently used placeholders: a page with many unfinished images requests the same one many times.
  private let placeholders = ImageMemory(capacity: 4 << 20)

  init(
    _ rendering: VariantRendering, renditions: RenditionCache, threads: any ComputeThreads,
    metrics: JobMetrics, queue: VariantQueue, now: @escaping WallClock
  ) {
    self.rendering = rendering
    self.renditions = renditions
    self.threads = threads
    self.metrics = metrics
    self.queue = Mutex(queue)
    self.now = now
  }

  /// Returns the rendition's bytes, stored or rendered now.
  ///
  /// - Parameters:
  ///   - owner: the owner whose share of the queue is used, unless the rendition is queued already.
  ///   - keeping: whether the cache may be read and written for this request. The result is also stored if another
  ///     waiting request allows it.
  /// - Throws: `.renderingsFull`, `.imageGone`, `.unrenderable`; `.draining` once closed; `.abandoned` if the task was
  ///   cancelled.
  func bytes(
    of rendition: Rendition, for owner: Owner, at priority: Priority, keeping: Bool
  ) async throws(JobsError) -> RenderedBytes {
    if keeping, let kept = await renditions.bytes(of: rendition) {
      metrics.variant(rendition.variant.format, .hit)
      return kept
    }
    guard renditions.space.hasRoom(for: owner) else {
      metrics.variant(rendition.variant.format, .refused)
      throw .renderingsFull
    }
    let waiter = VariantQueue.Waiter(owner: owner, priority: { priority }, keeps: keeping)
    return try await wait(for: rendition, waiter).get()
  }

  /// Returns the bytes of several renditions of one image. Those that one decode can make enter the queue together.
  ///
  /// - Parameter priority: read at each turn.
  /// - Returns: the bytes or the error of each; `.renderingsFull` for those that found no slot in the queue.
  func bytes(
    of wanted: [Rendition], for owner: Owner, at priority: @escaping @Sendable () -> Priority,
    keeping: Bool
  ) async -> [CacheEntry.ID: Outcome] {
    var outcomes: [CacheEntry.ID: Outcome] = [:]
    var missing: [Rendition] = []
    for rendition in wanted where outcomes[rendition.id] == nil {
      if keeping, let kept = await renditions.bytes(of: rendition) {
        metrics.variant(rendition.variant.format, .hit)
        outcomes[rendition.id] = .success(kept)
      } else if !missing.contains(where: { $0.id == rendition.id }) {
        missing.append(rendition)
      }
    }
    let requests = missing.map { rendition in
      (rendition, VariantQueue.Waiter(owner: owner, priority: priority, keeps: keeping))
    }
    let numbers = queue.withLock { queue in requests.map { _ in queue.number() } }
    let answers = enter(zip(requests, numbers).map { ($0.0, $1, $0.1) })
    for (((rendition, waiter), number), answer) in zip(zip(requests, numbers), answers) {
      if let outcome = if let answer { answer } else { await waiter.outcome.value() } {
        outcomes[rendition.id] = outcome
      } else {
        removeRequest(number, rendition.id, rendition.variant.format)
        outcomes[rendition.id] = .failure(.abandoned)
      }
    }
    return outcomes
  }

  /// Returns the bytes of a placeholder's rendition, which is cached in memory only.
  /// - Throws: as ``bytes(of:for:at:keeping:)``.
  func placeholder(
    _ rendition: Rendition, for owner: Owner, at priority: Priority
  ) async throws(JobsError) -> RenderedBytes {
    let name = rendition.digest
    if let bytes = placeholders.bytes(of: name) {
      return RenderedBytes(.memory(bytes), entityTag: name.entityTag)
    }
    let rendered = try await bytes(of: rendition, for: owner, at: priority, keeping: false)
    if case .memory(let bytes) = rendered.bytes { placeholders.insert(bytes, as: name) }
    return rendered
  }

  /// Returns how many renderings run and wait, and the age of the oldest running one.
  var load: (rendering: Int, waiting: Int, oldest: Duration) {
    queue.withLock { queue in
      let oldest = queue.oldest.map { $0.duration(to: .now) }
      return (queue.rendering, queue.waiting, oldest ?? .zero)
    }
  }

  /// Stops rendering. Returns once the running renderings have ended.
  func close() async {
    let (waiters, tasks) = queue.withLock { $0.close() }
    for waiter in waiters { waiter.outcome.fulfil(.failure(.draining)) }
    for task in tasks { task.cancel() }
    for task in tasks { await task.value }
  }

  // MARK: Waiting

  private func wait(for rendition: Rendition, _ waiter: VariantQueue.Waiter) async -> Outcome {
    let me = queue.withLock { $0.number() }
    if let answer = enter(rendition, me, waiter) { return answer }
    if let outcome = await waiter.outcome.value() { return outcome }
    removeRequest(me, rendition.id, rendition.variant.format)
    return .failure(.abandoned)
  }

  /// - Returns: nil if the waiter gets its result later.
  private func enter(
    _ rendition: Rendition, _ me: UInt64, _ waiter: VariantQueue.Waiter
  ) -> Outcome? {
    enter([(rendition, me, waiter)])[0]
  }

  /// Enters several requests before any of them begins, so that one decode can make their renditions.
  private func enter(
    _ requests: [(rendition: Rendition, me: UInt64, waiter: VariantQueue.Waiter)]
  ) -> [Outcome?] {
    queue.withLock { queue in
      if queue.isClosed { return requests.map { _ in .failure(.draining) } }
      let moment = now()
      let answers = requests.map { rendition, me, waiter -> Outcome? in
        let format = rendition.variant.format
        switch queue.enter(rendition, me, waiter, at: moment, lane: { threads.lane(at: $0) }) {
        case .added: return nil
        case .joined:
          metrics.variant(format, .joined)
          return nil
        case .finished(let outcome):
          metrics.variant(format, .joined)
          return outcome
        case .refused:
          metrics.variant(format, .refused)
          return .failure(.renderingsFull)
        }
      }
      startNext(&queue)
      return answers
    }
  }

  private func removeRequest(_ me: UInt64, _ id: CacheEntry.ID, _ format: OutputFormat) {
    let left = queue.withLock { $0.removeRequest(me, id) }
    if left.isForgotten { metrics.variant(format, .abandoned) }
    left.task?.cancel()
  }

  // MARK: Rendering

  private func startNext(_ queue: inout VariantQueue) {
    queue.startNext { number, work in
      Task(executorPreference: work.lane) {
        await self.carryOut(number, work.rendition, for: work.owner)
      }
    }
  }

  private func carryOut(_ number: UInt64, _ rendition: Rendition, for owner: Owner) async {
    // An equal rendition may have been stored since the request looked.
    if keeps(number), let kept = await renditions.bytes(of: rendition) {
      metrics.variant(rendition.variant.format, .hit)
      finish(number, .success(kept), isBeingKept: false)
      remove(number)
    } else if !renditions.space.hasRoom(for: owner) {
      // The space was used up while this request waited.
      metrics.variant(rendition.variant.format, .refused)
      finish(number, .failure(.renderingsFull), isBeingKept: false)
    } else {
      await render(
        queue.withLock { $0.coalesce(number, atMost: VariantRequest.most, rendering.fits) },
        for: owner)
    }
  }

  private func render(
    _ works: [(number: UInt64, rendition: Rendition)], for owner: Owner
  ) async {
    let results = await render(
      works.map(\.rendition), for: owner, keeping: works.contains { keeps($0.number) })
    for (work, result) in zip(works, results) {
      guard case .failure(let error) = result else { continue }
      metrics.variant(work.rendition.variant.format, error == .abandoned ? .abandoned : .failed)
    }
    // All waiting requests get their results before anything is stored.
    let kept = zip(works, results).filter { work, result in deliver(work.number, result) }
    for (work, result) in kept {
      if let new = try? result.get() { await renditions.save(new, of: work.rendition) }
      remove(work.number)
    }
  }

  /// Renders with one decode, now.
  ///
  /// - Parameters:
  ///   - owner: the owner whose share of the space is used.
  ///   - keeping: whether any of the results is to be stored.
  /// - Returns: the encoded images, in the order of `wanted`.
  private func render(
    _ wanted: [Rendition], for owner: Owner, keeping: Bool
  ) async -> [Result<NewRendition, JobsError>] {
    let start = ContinuousClock.now
    do throws(JobsError) {
      let files = try await rendering.bytes(of: wanted) {
        bytes throws(StoreError) in try await renditions.stage(bytes, for: owner, isKept: keeping)
      }
      let time = start.duration(to: .now)
      for (rendition, file) in zip(wanted, files) where (try? file.get()) != nil {
        metrics.rendered(rendition.variant.format, in: time)
      }
      return files
    } catch {
      return wanted.map { _ in .failure(error) }
    }
  }

  /// - Returns: whether the result is to be stored.
  private func deliver(_ number: UInt64, _ result: Result<NewRendition, JobsError>) -> Bool {
    let outcome = result.map(\.bytes)
    let count = (try? outcome.get())?.bytes.count
    let isKept = count.map { keeps(number) && renditions.mayStore($0) } ?? false
    finish(number, outcome, isBeingKept: isKept)
    return isKept
  }

  private func keeps(_ number: UInt64) -> Bool { queue.withLock { $0.mayStore(number) } }

  private func finish(_ number: UInt64, _ outcome: Outcome, isBeingKept: Bool) {
    let waiters = queue.withLock { queue in
      defer { startNext(&queue) }
      return queue.finish(number, outcome, isBeingKept: isBeingKept)
    }
    for waiter in waiters { waiter.outcome.fulfil(outcome) }
  }

  private func remove(_ number: UInt64) {
    queue.withLock { queue in
      queue.remove(number)
      startNext(&queue)
    }
  }
}
