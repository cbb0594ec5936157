internal import Jobs
internal import Synchronization

/// Which jobs those who view images are given: a picture that many look at is one job.
final class Views: Sendable {
  typealias Outcome = Result<JobSnapshot, JobsError>

  private struct State {
    var jobs: LRUCache<Fingerprint, JobID>
    var submitting: [Fingerprint: Task<Outcome, Never>] = [:]
    /// Of jobs that somebody waits for.
    var viewers: [JobID: Int] = [:]
  }

  private let state: Mutex<State>

  /// - Parameter capacity: jobs that are remembered.
  init(capacity: Int) { state = Mutex(State(jobs: LRUCache(capacity: capacity))) }

  /// The job that was given last to who asked the same; it may have ended or be gone.
  func job(for view: Fingerprint) -> JobID? { state.withLock { $0.jobs.value(for: view) } }

  /// Submits a job, once for all who ask the same at the same time.
  func submit(
    _ view: Fingerprint, _ submit: @escaping @Sendable () async -> Outcome
  ) async -> Outcome {
    let task = state.withLock { state in
      if let task = state.submitting[view] { return task }
      let task = Task { await self.carryOut(view, submit) }
      state.submitting[view] = task
      return task
    }
    return await task.value
  }

  /// Has every view be given a new job.
  func clear() { state.withLock { $0.jobs.removeAll() } }

  /// How many wait for the job.
  func viewers(of id: JobID) -> Int { state.withLock { $0.viewers[id] ?? 0 } }

  /// Somebody begins to wait for the job.
  func enter(_ id: JobID) { state.withLock { $0.viewers[id, default: 0] += 1 } }

  /// Somebody waits no more.
  /// - Returns: whether nobody does now.
  func leave(_ id: JobID) -> Bool {
    state.withLock { state in
      let left = (state.viewers[id] ?? 1) - 1
      state.viewers[id] = left > 0 ? left : nil
      return left <= 0
    }
  }

  private func carryOut(
    _ view: Fingerprint, _ submit: @Sendable () async -> Outcome
  ) async -> Outcome {
    let outcome = await submit()
    state.withLock { state in
      state.submitting[view] = nil
      if case .success(let snapshot) = outcome { state.jobs.set(snapshot.job.id, for: view) }
    }
    return outcome
  }
}
