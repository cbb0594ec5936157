internal import Jobs
internal import Synchronization

/// The jobs of views: requests for an image by its URL, without a job of the client's. Equal views share a job.
final class ViewJobs: Sendable {
  typealias Outcome = Result<JobSnapshot, JobsError>

  private struct State {
    var jobs: LRUCache<Fingerprint, JobID>
    var submitting: [Fingerprint: Task<Outcome, Never>] = [:]
    /// The number of views that wait for each job.
    var viewers: [JobID: Int] = [:]
  }

  private let state: Mutex<State>

  /// - Parameter capacity: number of jobs to remember.
  init(capacity: Int) { state = Mutex(State(jobs: LRUCache(capacity: capacity))) }

  /// Returns the last job for this view. It may have ended or been deleted.
  func job(for view: Fingerprint) -> JobID? { state.withLock { $0.jobs.value(for: view) } }

  /// Submits a job, once for equal views at the same time.
  /// - Parameter last: the last job for this view, which the caller can't use.
  /// - Returns: nil if there is a later job.
  func submit(
    _ view: Fingerprint, after last: JobID?, _ submit: @escaping @Sendable () async -> Outcome
  ) async -> Outcome? {
    let task: Task<Outcome, Never>? = state.withLock { state in
      if let task = state.submitting[view] { return task }
      guard state.jobs.value(for: view) == last else { return nil }
      let task = Task { await self.submitOnce(view, submit) }
      state.submitting[view] = task
      return task
    }
    return await task?.value
  }

  /// Forgets all jobs, so that each view gets a new one.
  func clear() { state.withLock { $0.jobs.removeAll() } }

  /// Returns how many views wait for the job.
  func viewers(of id: JobID) -> Int { state.withLock { $0.viewers[id] ?? 0 } }

  /// Records that a view waits for the job.
  func addViewer(of id: JobID) { state.withLock { $0.viewers[id, default: 0] += 1 } }

  /// Records that a view no longer waits for the job.
  /// - Returns: whether it was the last one.
  func removeViewer(of id: JobID) -> Bool {
    state.withLock { state in
      let left = (state.viewers[id] ?? 1) - 1
      state.viewers[id] = left > 0 ? left : nil
      return left <= 0
    }
  }

  private func submitOnce(
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
