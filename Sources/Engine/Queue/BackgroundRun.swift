internal import Jobs
internal import Logging

/// One piece of work that no job waits for.
struct BackgroundRun: Sendable {
  let crew: Crew

  /// Confirms or replaces a stored response. What goes wrong is left to the next job that asks for it.
  func freshen(_ job: Job) async {
    var submission = job.submission
    submission.cacheMode = .noCache
    submission.integrity = nil
    let again = Job(
      id: crew.ids.next(at: crew.now()), owner: job.owner, submission: submission,
      priority: .veryLow, tags: [], createdAt: crew.now())
    await load(again)
  }

  /// Goes through the jobs that have a low-data image, and gives each its regular one.
  func replaceLowData() async {
    var last: JobID?
    while !Task.isCancelled, !crew.network.isConstrained, !crew.loads.isStopping {
      let jobs = await jobs(after: last)
      guard !jobs.isEmpty else { return }
      last = jobs.last?.id
      await withDiscardingTaskGroup { group in
        for job in jobs { group.addTask { await replaceImage(of: job) } }
      }
    }
  }

  /// Those next, however often the store has to be asked; none once cancelled.
  private func jobs(after last: JobID?) async -> [Job] {
    var wait = Duration.milliseconds(100)
    while !Task.isCancelled {
      do throws(StoreError) {
        return try await crew.store.jobsWithLowDataImages(after: last, count: 64)
      } catch {
        crew.log.error("low-data images can't be looked up", metadata: ["error": "\(error)"])
      }
      try? await Task.sleep(for: wait)
      wait = min(wait * 2, .seconds(10))
    }
    return []
  }

  private func replaceImage(of job: Job) async {
    var regular = job
    regular.target = .regular
    await load(regular) { _, obtained in await replaceImage(of: job.id, by: obtained) }
  }

  private func replaceImage(of id: JobID, by obtained: LoadTask.Obtained) async {
    let outcome = ChangeOutcome()
    do throws(StoreError) {
      let job = try await crew.store.update(id, under: nil) { job in
        guard job.image?.variant == .lowData, job.phase == .success else { return false }
        job.replaceImage(with: obtained.image.seen(as: .regular), cache: obtained.cache)
        outcome.note(.changed)
        return true
      }
      guard let job, outcome.value == .changed else { return }
      crew.snapshots.publish(job)
      Finishing(crew: crew).tellReplaced(job)
    } catch {
      crew.log.error(
        "a low-data image can't be replaced", metadata: ["job": "\(id)", "error": "\(error)"])
    }
  }

  /// Obtains what the job asks for, keeps it, and then does `use` while the image is held.
  private func load(
    _ job: Job, _ use: (Load, LoadTask.Obtained) async -> Void = { _, _ in }
  ) async {
    guard let permit = await permit(for: job) else { return }
    let load = crew.load(for: job, isBackground: true)
    guard crew.loads.begin(load) else { return }
    if let obtained = await obtain(load, OriginPermits(permit)) {
      await JobCompleter(crew: crew).complete([], of: load, entry: obtained.entry) { _ in .requeue }
      await use(load, obtained)
    }
    if let reservation = load.reservation { await crew.keeper.release(reservation) }
    crew.loads.end(load)
  }

  private func obtain(_ load: Load, _ permits: OriginPermits) async -> LoadTask.Obtained? {
    await withCheckedContinuation { done in
      let task = Task(executorPreference: load.lane) {
        do throws(JobFailure) {
          let run = URLLoad(load: load, crew: crew, permits: permits)
          done.resume(returning: try await run.obtain())
        } catch {
          crew.log.info(
            "an image could not be loaded in the background",
            metadata: ["origin": "\(load.leader.origin ?? "")", "code": "\(error.code.rawValue)"])
          done.resume(returning: nil)
        }
      }
      load.run(as: task)
    }
  }

  /// Waits for room at the origin for a while, at no worker's cost.
  private func permit(for job: Job) async -> OriginPermit? {
    guard let origin = job.origin else { return nil }
    do throws(FetchError) { return try await crew.origins.admit(origin) } catch { return nil }
  }
}
