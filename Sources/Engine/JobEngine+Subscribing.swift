public import Jobs
internal import Logging

/// What clients see of jobs as it happens.
extension JobEngine {
  /// Subscribes to a job: first comes the job as it is, then each change, until it has finished or is gone.
  ///
  /// - Parameters:
  ///   - seen: the version that the client has; if the job still has it, it doesn't come again.
  ///   - cancelsAtLeaving: whether the job, unless it has finished, is cancelled when the last subscription that asked
  ///     for this is let go of. The service's own stop cancels nothing.
  public func subscribe(
    to id: JobID, for caller: Caller, seen: Int?, cancelsAtLeaving: Bool
  ) async throws(JobsError) -> any JobSubscription {
    let snapshot = try await job(id, for: caller)
    let subscription = snapshots.subscribers.subscribe(
      to: snapshot, seen: seen, holds: cancelsAtLeaving, for: caller)
    // A change between the look at the job and the subscription was delivered to nobody.
    do throws(JobsError) {
      let newest = try await job(id, for: caller)
      let events = JobEvents(from: snapshot.job, to: newest.job)
      subscription.deliver([Change(snapshot: newest, events: events)])
      followElsewhere([newest.job])
    } catch {
      guard error == .unknownJob else { throw error }
      subscription.end()
    }
    return subscription
  }

  /// Subscribes to all jobs that the caller sees and the query means: first come the jobs as they are, then changes.
  public func subscribe(_ query: SubscriptionQuery) -> any JobSubscription {
    snapshots.subscribers.subscribe(query, now: clock)
  }

  /// Reads the jobs as they are, one page after another, for subscriptions to many that begin, their owners in turn.
  func listForSubscribers() async {
    for await _ in snapshots.subscribers.wantedListings {
      guard let subscription = snapshots.subscribers.nextListing(),
        let listing = subscription.wanted
      else { continue }
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
      followElsewhere(page.jobs)
      var next = listing
      // A page may be without a job where those that it looked at can't be read.
      next.before = page.last ?? page.jobs.last?.id
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

  /// Cancels jobs whose last subscription has ended that held them.
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
  /// One page of what a subscription begins with; nil: there can't be any.
  fileprivate init?(
    _ listing: ManyJobsSubscription.Listing, _ query: SubscriptionQuery, now: Timestamp
  ) {
    self.init(owner: query.caller.isAdmin ? nil : query.caller.owner, now: now, limit: 100)
    let asked = query.phases.isEmpty ? Set(Phase.allCases) : query.phases
    phases = listing.since == nil ? asked.filter { !$0.isFinished } : asked
    if phases.isEmpty { return nil }
    tag = query.tag
    before = listing.before
    maxBytes = ManyJobsSubscription.maxPageBytes
  }
}
