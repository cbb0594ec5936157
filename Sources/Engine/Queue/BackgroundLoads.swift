internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// Work that no job waits for: freshening what the cache gave out stale, and putting regular images in the place of
/// low-data ones. Little of it at once, and each origin's limits hold for it too.
final class BackgroundLoads: Sendable {
  /// What there is to do.
  enum Task: Sendable {
    /// Confirm or replace the stored response that answered this job (RFC 5861 section 3).
    case freshen(Job)
    /// Look for jobs whose low-data image can be replaced.
    case replaceLowData
  }

  private let tasks: AsyncStream<Task>
  private let continuation: AsyncStream<Task>.Continuation
  private let underWay = Mutex<Set<Fingerprint>>([])

  init() {
    (tasks, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(1_024))
  }

  /// Has a response freshened, once however often it is asked for meanwhile.
  func freshen(_ job: Job) {
    guard let key = job.cacheKey, underWay.withLock({ $0.insert(key).inserted }) else { return }
    if case .dropped = continuation.yield(.freshen(job)) { done(key) }
  }

  func replaceLowData() { continuation.yield(.replaceLowData) }

  func stop() { continuation.finish() }

  /// Does what there is to do until stopped.
  func run(_ crew: Crew) async {
    await withDiscardingTaskGroup { group in
      let permits = AsyncSemaphore(8)
      for await task in tasks {
        let permit = await permits.acquire()
        group.addTask {
          await self.perform(task, crew)
          _ = consume permit
        }
      }
      group.cancelAll()
    }
  }

  private func perform(_ task: Task, _ crew: Crew) async {
    switch task {
    case .freshen(let job):
      await BackgroundRun(crew: crew).freshen(job)
      if let key = job.cacheKey { done(key) }
    case .replaceLowData: await BackgroundRun(crew: crew).replaceLowData()
    }
  }

  private func done(_ key: Fingerprint) { underWay.withLock { _ = $0.remove(key) } }
}
