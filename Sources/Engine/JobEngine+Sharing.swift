package import Jobs
internal import Logging

/// Events between this process and the other instances that share the store.
extension JobEngine {
  /// Adopts the network state that an operator set at the instances that are already running.
  func adoptNetworkState() async throws(StoreError) {
    guard !sharing.membership.isAlone, let isConstrained = try await store.isConstrained() else {
      return
    }
    _ = setNetwork(isConstrained)
  }

  /// Receives the events of other instances until cancelled. Announcements are handled at once, so that the other
  /// instances do not wait for slower events. All other events are passed on.
  /// - Parameters:
  ///   - news: the events that other instances publish to this one.
  ///   - first: the identity of this process at the start; a new lease changes it.
  func receiveEvents(
    _ news: AsyncStream<InstanceEvent>, as first: Instance, passingOnTo inbox: InstanceEventBus
  ) async {
    var (news, instance) = (news, first)
    while !Task.isCancelled {
      for await event in news {
        receive(event, passingOnTo: inbox)
        if sharing.membership.instance != instance { break }
      }
      // The stream ends with the lease. The process may have a new lease by now.
      if sharing.membership.instance == instance { return }
      instance = sharing.membership.instance
      news = sharing.membership.events(for: instance)
      // Events between the end of the last lease and now were lost.
      receive(.lost, passingOnTo: inbox)
    }
  }

  private func receive(_ event: InstanceEvent, passingOnTo inbox: InstanceEventBus) {
    switch event {
    case .announced(let subject, let id):
      events.snapshots.recordAnnouncement(of: subject)
      return sharing.membership.publish(.confirmed(id, by: sharing.membership.instance))
    case .confirmed(let id, let instance):
      return events.announcer.recordConfirmation(of: id, by: instance)
    case .heartbeat(let asked): events.snapshots.recordHeartbeat(asked: asked)
    case .lost: events.snapshots.recordLoss()
    default: break
    }
    inbox.publish(event, from: .none)
  }

  /// Applies the events that were passed on, until cancelled: shows changes, stops work that was cancelled or taken
  /// over, and claims jobs that other instances queued.
  func applyEvents(_ inbox: AsyncStream<InstanceEvent>) async {
    recordReceived(until: now())
    for await event in inbox { await apply(event) }
  }

  private func apply(_ news: InstanceEvent) async {
    if case .heartbeat(let asked) = news { return recordHeartbeat(since: asked) }
    sharing.membership.metrics.received()
    switch news {
    case .queued: queue.dispatcher.wake()
    case .equalQueued(let request): await join(request, JobCompleter.batch)
    case .originPaused(let origin, let time): queue.origins.pause(origin, for: time)
    case .changed(let id): if events.snapshots.removeUnlessInUse(id) { await applyChange(of: id) }
    case .removed(let ids):
      events.snapshots.remove(ids)
      for id in ids { loading.loads.remove(id, before: .max) }
    case .purged(let id, let partial):
      events.snapshots.purge(id)
      loading.loads.remove(id, before: .max, discardingBytes: true)
      if let partial { await loading.kept.delete(partial) }
    case .batchPurged(let id): events.snapshots.purge(batch: id)
    case .imagesDeleted(let digests):
      for digest in digests {
        caching.responses.memory.remove(digest)
        await parts.images.deleteCopy(of: digest)
      }
    case .followed(let ids): events.snapshots.startPublishingProgress(of: ids)
    case .progress(let id, let version, let report):
      events.snapshots.report(id, report, at: version)
    case .cacheDeleted: clearCaches()
    case .constrained(let isConstrained): _ = setNetwork(isConstrained)
    case .lost:
      queue.dispatcher.wake()
      clearCaches()
      do throws(StoreError) { try await adoptNetworkState() } catch {
        log.error("failed to read the network state", metadata: ["error": "\(error)"])
      }
      let (moment, held) = (now(), events.snapshots.removeUnused())
      // An instance that lost its lease may not have published what it did while the lease lasted.
      events.snapshots.subscribers.relist(after: configuration.lease)
      recordReceived(until: moment)
      for id in held { await applyChange(of: id) }
    // Handled before.
    case .heartbeat, .announced, .confirmed: break
    }
  }

  /// Handles a heartbeat: everything that was published before the store was asked has been delivered. If events are
  /// delayed for long, some may have been dropped, and the `.lost` event may still be behind this one. So only a recent
  /// heartbeat counts.
  private func recordHeartbeat(since asked: ContinuousClock.Instant) {
    let age = ContinuousClock.now - asked
    if age < ManyJobsSubscription.slack / 4 { recordReceived(until: now() + (.zero - age)) }
  }

  private func recordReceived(until moment: Timestamp) {
    // There are no other instances.
    guard !sharing.membership.isAlone else { return }
    events.snapshots.subscribers.recordReceived(until: moment)
  }

  private func clearCaches() {
    caching.responses.clearMemory()
    caching.views.clear()
  }

  /// Reads a job that another instance changed, and applies its new state here. If the store does not answer, retries
  /// until it does.
  func applyChange(of id: JobID) async {
    var wait = Duration.milliseconds(50)
    while !Task.isCancelled {
      do throws(StoreError) {
        return apply(try await stored(id), as: id)
      } catch {
        log.error(
          "failed to read another instance's change",
          metadata: ["job": "\(id)", "error": "\(error)"])
        if case .unreadable = error { return }
      }
      try? await Task.sleep(for: wait)
      wait = min(wait * 2, .seconds(5))
    }
  }

  /// Returns the job as the store has it. A crash of the store can undo a claim that was already shown here. The stored
  /// version is then lower than the shown one, and clients would ignore all later states. So the job gets a higher
  /// version.
  private func stored(_ id: JobID) async throws(StoreError) -> Job? {
    let found = try await store.job(id)
    guard let shown = events.snapshots.peek(id)?.job, found?.isBehind(shown) == true else {
      return found
    }
    let lifted = try await store.update(id, under: nil) { $0.raiseRevision(above: shown) }
    sharing.membership.publish(.changed(id))
    return lifted
  }

  private func apply(_ job: Job?, as id: JobID) {
    guard let job else {
      events.snapshots.remove([id])
      return loading.loads.remove(id, before: .max)
    }
    events.snapshots.publish(job, .changedElsewhere)
    guard job.phase == .loading else { return loading.loads.remove(id, before: job.version) }
    loading.loads.prioritize(id, job.priority)
    requestRemoteProgress(of: [job])
  }

  /// Asks the instances that load these jobs to publish their progress, because a client here follows them. Does
  /// nothing in an exclusive store.
  func requestRemoteProgress(of jobs: [Job]) {
    guard !sharing.membership.isAlone else { return }
    let ids = jobs.filter { $0.phase == .loading && !events.snapshots.isPinned($0.id) }.map(\.id)
    if !ids.isEmpty { sharing.membership.publish(.followed(ids)) }
  }
}

/// The instances, for operators.
extension JobEngine {
  /// Returns the instances whose lease is valid, the leading one first.
  package func instances() async throws(JobsError) -> [PresentInstance] {
    let present = try await withStore { () async throws(StoreError) in
      try await store.presentInstances()
    }
    guard present.isEmpty else { return present }
    var this = PresentInstance(
      sharing.membership.instance, name: configuration.name, version: configuration.version,
      since: since, loading: loading.loads.claims.count)
    (this.running, this.workers) = (loading.loads.count, configuration.workers)
    this.oldest = loading.loads.oldest.map { now() - $0 } ?? .zero
    return [this]
  }

  /// Publishes this instance's activity of one time step to the instances that share the store.
  package func record(_ step: Activity.Step) async throws(StoreError) {
    guard !store.isExclusive else { return }
    try await store.record(step, caching.responses.ownCounts, of: sharing.membership.instance)
  }

  /// Returns the activity of all instances; nil in an exclusive store.
  package func activity() async throws(JobsError) -> Activity? {
    try await withStore { () async throws(StoreError) in try await store.activity() }
  }

  /// The identity of this process in the cluster.
  package var instance: Instance { sharing.membership.instance }
}
