internal import API
internal import Jobs
internal import Synchronization

/// Keeps what the service did lately, for `/activity`: a step every five seconds, of which it holds a quarter of an hour
/// in memory, some 6 kB.
final class ActivityRecorder: Sendable {
  private struct State {
    var activity: Activity
    var ended = Ended()
  }

  /// Since the process began.
  struct Ended: Equatable {
    var succeeded = 0
    var failed = 0
  }

  private let state: Mutex<State>

  init(at now: Timestamp) { state = Mutex(State(activity: Activity(end: now))) }

  var activity: Activity { state.withLock { $0.activity } }

  /// Ends a step.
  func note(queued: Int, loading: Int, _ ended: Ended, at now: Timestamp) {
    state.withLock { state in
      var step = Activity.Step()
      (step.queued, step.loading) = (queued, loading)
      step.succeeded = max(0, ended.succeeded - state.ended.succeeded)
      step.failed = max(0, ended.failed - state.ended.failed)
      // While the machine slept nothing was noted; the steps stay equal in length.
      let passed = (now - state.activity.end) / .seconds(Activity.interval)
      let missed = max(0, min(Activity.most, Int(max(0, min(passed, 1e6)).rounded()) - 1))
      state.activity.steps += Array(repeating: Activity.Step(), count: missed) + [step]
      state.activity.steps = Array(state.activity.steps.suffix(Activity.most))
      state.activity.end = now
      state.ended = ended
    }
  }

  /// Ends a step every five seconds, until the task is cancelled.
  /// - Parameter observe: sets the registry's gauges.
  func keep(
    _ registry: PrometheusRegistry, now: @Sendable () -> Timestamp, observe: () async -> Void
  ) async {
    while !Task.isCancelled {
      try? await Task.sleep(for: .seconds(Activity.interval))
      if Task.isCancelled { return }
      await observe()
      let jobs = { (phase: String) in
        Int(registry.sum(of: "imagefetch_jobs", labels: "phase=\"\(phase)\""))
      }
      let ended = { (phase: String) in
        Int(registry.sum(of: "imagefetch_jobs_finished_total", labels: "phase=\"\(phase)\""))
      }
      note(
        queued: jobs("queued"), loading: jobs("loading"),
        Ended(succeeded: ended("success"), failed: ended("failure")), at: now())
    }
  }
}
