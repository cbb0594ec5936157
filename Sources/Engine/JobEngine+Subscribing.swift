package import Jobs
internal import Logging

/// Subscriptions of clients to changes of jobs.
extension JobEngine {
  /// Subscribes to a job. The subscription first yields the job as it is, then each change, until the job has finished
  /// or is deleted.
  ///
  /// - Parameters:
  ///   - seen: the version that the client already has. The first update is left out if the job still has this version.
  ///   - cancelsOnDisconnect: whether the job is cancelled when the last subscription with this flag ends. Stopping
  ///     the service cancels no job.
  package func subscribe(
    to id: JobID, for caller: Caller, seen: Int?, cancelsOnDisconnect: Bool
  ) async throws(JobsError) -> any JobSubscription {
    let snapshot = try await job(id, for: caller)
    let subscription = events.snapshots.subscribers.subscribe(
      to: snapshot, seen: seen, holds: cancelsOnDisconnect, for: caller)
    // A change between reading the job and subscribing was not delivered.
    do throws(JobsError) {
      let newest = try await job(id, for: caller)
      let events = JobEvents(from: snapshot.job, to: newest.job)
      subscription.deliver([Change(snapshot: newest, events: events)])
      requestRemoteProgress(of: [newest.job])
    } catch {
      guard error == .unknownJob else { throw error }
      subscription.finish()
    }
    return subscription
  }

  /// Subscribes to all jobs that the caller may see and that match the query. The subscription first yields the jobs as
  /// they are, then changes.
  package func subscribe(_ query: SubscriptionQuery) -> any JobSubscription {
    events.snapshots.subscribers.subscribe(query, now: clock)
  }

  /// Reads pages of jobs for new subscriptions to many jobs, one page at a time, the owners in round robin.
  func readPagesForSubscribers() async {
    for await _ in events.snapshots.subscribers.pageRequests {
      guard let subscription = events.snapshots.subscribers.nextPageRequest(),
        let listing = subscription.nextPage
      else { continue }
      let (jobs, next) = await read(listing, for: subscription.query)
      subscription.addPage(jobs, of: listing, next: next)
    }
  }

  private func read(
    _ listing: ManyJobsSubscription.Listing, for query: SubscriptionQuery
  ) async -> (jobs: [JobSnapshot], next: ManyJobsSubscription.Listing?) {
    guard let wanted = JobQuery(listing, query, now: now()) else { return ([], nil) }
    do throws(JobsError) {
      let page = try await jobs(wanted)
      requestRemoteProgress(of: page.jobs)
      var next = listing
      // Unreadable jobs are skipped, so a page can be empty although more follow.
      next.before = page.last ?? page.jobs.last?.id
      let jobs = page.jobs.filter { job in
        guard let since = listing.since, let finished = job.finishedAt else { return true }
        return finished + ManyJobsSubscription.slack > since
      }
      return (jobs.map { JobSnapshot($0) }, page.hasMore ? next : nil)
    } catch {
      // The error has been logged. Retry the same page after a short pause.
      try? await Task.sleep(for: .milliseconds(200))
      return ([], listing)
    }
  }

  /// Cancels jobs that were to be cancelled when their last subscription ended.
  func cancelAbandoned() async {
    for await (id, caller) in events.snapshots.subscribers.abandoned {
      guard !events.snapshots.subscribers.holds(id),
        events.snapshots.peek(id)?.job.phase.isFinished != true
      else { continue }
      do throws(JobsError) { _ = try await cancel(id, for: caller) } catch {
        guard error != .unknownJob else { continue }
        log.error(
          "failed to cancel an abandoned job", metadata: ["job": "\(id)", "error": "\(error)"])
      }
    }
  }
}

extension JobQuery {
  /// The query for one page of a new subscription; nil if no job can match.
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
