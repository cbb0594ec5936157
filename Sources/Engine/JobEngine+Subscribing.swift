public import Jobs
internal import Logging

/// Telling clients of changes as they happen.
extension JobEngine {
  /// Listens to a job: first to how it is, then to what changes, until it has finished or is gone.
  ///
  /// - Parameters:
  ///   - told: the version of which the listener knows; if the job still has it, that isn't told again.
  ///   - cancelsAtLeaving: whether the job, unless it has finished, is cancelled when the last listener that said so is
  ///     let go of. The service's own stop is not such a leaving.
  public func subscribe(
    to id: JobID, for caller: Caller, told: Int?, cancelsAtLeaving: Bool
  ) async throws(JobsError) -> any JobSubscription {
    let snapshot = try await job(id, for: caller)
    let subscription = snapshots.subscribers.subscribe(
      to: snapshot, told: told, holds: cancelsAtLeaving, for: caller)
    // What changed between the look at it and the listening was noted for nobody.
    if let newest = snapshots.peek(id) {
      subscription.deliver(newest, JobEvents(from: snapshot.job, to: newest.job))
    } else {
      subscription.end(forgetting: false)
    }
    return subscription
  }

  /// Listens to all jobs that the caller sees and the query means: first to how they are, then to what changes.
  public func subscribe(_ query: SubscriptionQuery) -> any JobSubscription {
    snapshots.subscribers.subscribe(query, now: clock)
  }

  /// Reads, one page after another, how jobs are for those who begin to listen to many.
  func listForSubscribers() async {
    for await subscription in snapshots.subscribers.asks {
      guard let listing = subscription.wanted else { continue }
      let (jobs, next) = await read(listing, for: subscription.query)
      subscription.take(jobs, of: listing, next: next)
    }
  }

  private func read(
    _ listing: ManyJobsSubscription.Listing, for query: SubscriptionQuery
  ) async -> (jobs: [JobSnapshot], next: ManyJobsSubscription.Listing?) {
    guard let wanted = JobQuery(listing, query, now: now()) else { return ([], nil) }
    do throws(JobsError) {
      let page = try await jobs(wanted)
      var next = listing
      next.before = page.jobs.last?.id
      let jobs = page.jobs.filter { job in
        guard let since = listing.since, let finished = job.finishedAt else { return true }
        return finished + ManyJobsSubscription.slack > since
      }
      return (jobs.map { JobSnapshot($0) }, page.hasMore ? next : nil)
    } catch {
      // Already in the log; asked again, after a while.
      try? await Task.sleep(for: .milliseconds(200))
      return ([], listing)
    }
  }

  /// Cancels jobs when nobody listens any more who wanted them for no longer than that.
  func cancelAbandoned() async {
    for await (id, caller) in snapshots.subscribers.abandoned {
      guard !snapshots.subscribers.holds(id),
        snapshots.peek(id)?.job.phase.isFinished != true
      else { continue }
      do throws(JobsError) { _ = try await cancel(id, for: caller) } catch {
        guard error != .unknownJob else { continue }
        log.error(
          "an abandoned job goes on", metadata: ["job": "\(id)", "error": "\(error)"])
      }
    }
  }
}

extension JobQuery {
  /// One page of what a listener is to be told; nil: there can't be any.
  fileprivate init?(
    _ listing: ManyJobsSubscription.Listing, _ query: SubscriptionQuery, now: Timestamp
  ) {
    self.init(owner: query.caller.isAdmin ? nil : query.caller.owner, now: now, limit: 100)
    let asked = query.phases.isEmpty ? Set(Phase.allCases) : query.phases
    phases = listing.since == nil ? asked.filter { !$0.isFinished } : asked
    if phases.isEmpty { return nil }
    tag = query.tag
    before = listing.before
  }
}
