internal import API
internal import Jobs
internal import Logging
internal import Synchronization

/// Records the activity of this process in steps of five seconds.
///
/// The last 15 minutes are kept in memory (about 6 kB). Each step is also published to the instances that share the store.
final class ActivityRecorder: Sendable {
  private struct State {
    var activity: Activity
    var ended = FinishedCounts()
    /// Activity of this process that is not in the database yet.
    var unpublished = Activity.Step()
  }

  /// Jobs finished since the process started.
  struct FinishedCounts: Equatable {
    var succeeded = 0
    var failed = 0
  }

  private let state: Mutex<State>

  init(at now: Timestamp) {
    state = Mutex(State(activity: Activity(end: Activity.end(of: Activity.number(at: now)))))
  }

  var activity: Activity { state.withLock { $0.activity } }

  /// Records one step.
  ///
  /// - Parameters:
  ///   - queued: queued jobs at this moment.
  ///   - loading: loading jobs at this moment.
  ///   - ended: jobs finished since the process started.
  func recordStep(queued: Int, loading: Int, _ ended: FinishedCounts, at now: Timestamp) {
    state.withLock { state in
      var step = Activity.Step()
      (step.queued, step.loading) = (queued, loading)
      step.succeeded = max(0, ended.succeeded - state.ended.succeeded)
      step.failed = max(0, ended.failed - state.ended.failed)
      state.ended = ended
      state.unpublished.add(step)
      let end = Activity.end(of: Activity.number(at: now))
      let passed = Int((end - state.activity.end) / .seconds(Activity.interval))
      if (-1...0).contains(passed), !state.activity.steps.isEmpty {
        // The timer fired early, or the clock was set back by less than a step.
        state.activity.steps[state.activity.steps.count - 1].add(step)
        return
      }
      // The clock was set back by more than a step: start the history again.
      if passed <= 0 { state.activity.steps = [] }
      // Steps that were missed while the machine was suspended are empty.
      let missed = max(0, min(Activity.most, passed - 1))
      state.activity.steps += Array(repeating: Activity.Step(), count: missed) + [step]
      state.activity.steps = Array(state.activity.steps.suffix(Activity.most))
      state.activity.end = end
    }
  }

  /// Records a step every five seconds, until the task is cancelled.
  /// - Parameters:
  ///   - observe: sets the registry's gauges.
  ///   - publish: writes the step to the shared store. If it fails, the step is added to the next one.
  func run(
    _ registry: PrometheusRegistry, now: @Sendable () -> Timestamp, log: Logger,
    observe: () async -> Void, publish: (Activity.Step) async throws(StoreError) -> Void
  ) async {
    let length = Int64(Activity.interval) * 1_000
    while !Task.isCancelled {
      // Steps end at multiples of five seconds of the wall clock.
      let rest = length - (now().milliseconds % length)
      try? await Task.sleep(for: .milliseconds(rest))
      if Task.isCancelled { return }
      await observe()
      let jobs = { (phase: String) in
        Int(registry.sum(of: "imagefetch_jobs", labels: "phase=\"\(phase)\""))
      }
      let ended = { (phase: String) in
        Int(registry.sum(of: "imagefetch_jobs_finished_total", labels: "phase=\"\(phase)\""))
      }
      recordStep(
        queued: jobs("queued"), loading: jobs("loading"),
        FinishedCounts(succeeded: ended("success"), failed: ended("failure")), at: now())
      let step = state.withLock { $0.unpublished }
      do throws(StoreError) {
        try await publish(step)
        state.withLock { $0.unpublished = Activity.Step() }
      } catch {
        log.warning("failed to record activity, retrying", metadata: ["error": "\(error)"])
      }
    }
  }
}
