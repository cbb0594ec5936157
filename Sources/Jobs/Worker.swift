internal import Logging

/// Carries one job at a time from fetch to stored result.
actor Worker {
  private let crew: Crew

  init(_ crew: Crew) { self.crew = crew }

  /// Works until the dispatcher sends it home.
  func run() async {
    while let (job, claim) = await crew.dispatcher.next() {
      await carry(job, under: claim)
    }
  }

  private func carry(_ job: Job, under claim: Claim) async {
    let reporter = Reporter(job: job, board: crew.board)
    let run = JobRun(job: job, claim: claim, reporter: reporter, crew: crew)
    crew.board.pin(job.id)
    // Not `await task.value`, which would lend the task this worker's priority.
    await withCheckedContinuation { done in
      let task = Task(executorPreference: crew.executor, priority: job.priority.taskPriority) {
        await run.carryOut()
        done.resume()
      }
      crew.running.add(
        RunningJobs.Run(job: job, since: crew.now(), reporter: reporter, task: task), under: claim)
      // A cancellation or a purge that came before the line above is on the board by now.
      if crew.board.publish(job)?.job.phase != .loading { task.cancel() }
    }
    crew.running.remove(claim)
    crew.board.unpin(job.id)
  }
}

/// What all workers share.
struct Crew: Sendable {
  let configuration: JobEngine.Configuration
  let dispatcher: Dispatcher
  let store: any JobStore
  let images: any ImageStore
  let keeper: ImageKeeper
  let fetcher: any ImageFetcher
  let intake: ImageIntake
  let executor: any TaskExecutor
  let board: JobBoard
  let running: RunningJobs
  let network: NetworkState
  let metrics: JobMetrics
  let now: WallClock
  let log: Logger
}

extension Priority {
  var taskPriority: TaskPriority {
    switch self {
    case .veryLow: .background
    case .low: .utility
    case .normal: .medium
    case .high: .high
    case .veryHigh: TaskPriority(rawValue: TaskPriority.high.rawValue + 4)
    }
  }
}
