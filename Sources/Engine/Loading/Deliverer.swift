internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization
internal import Waiting

/// Sends stored images and variants to the destinations that jobs name.
///
/// Input: one delivery of a job. Output: the key and ETag of the stored object, or the failure. ``DeliverySlots`` limits
/// the deliveries that run at the same time. The transfer itself runs on the fetcher's loop, not on a thread of its own.
struct Deliverer: Sendable {
  /// Nil if nothing can be delivered.
  let destinations: (any ImageDestinations)?
  let renderer: JobRenderer
  let threads: any ComputeThreads
  let slots: DeliverySlots
  /// The timeout of all deliveries of a job, from the start of the first one.
  let timeout: Duration
  let now: WallClock
  let log: Logger
  private let counters = (
    delivered: Counter(
      label: "imagefetch_deliveries_total", dimensions: [("outcome", "delivered")]),
    failed: Counter(label: "imagefetch_deliveries_total", dimensions: [("outcome", "failed")])
  )

  /// Delivers an image, or a variant of it, to one destination. The caller holds a slot.
  ///
  /// - Parameters:
  ///   - image: the image, with the job's variants.
  ///   - deadline: the deadline of all deliveries of the job. The first delivery sets it.
  /// - Throws: `.failed(.fetch(.cancelled))` when the task is cancelled.
  func deliver(
    _ request: DeliveryRequest, of image: StoredImage, for job: Job,
    until deadline: inout Timestamp?
  ) async throws(FinishError) -> Delivered {
    // The deadline is set when the job has its first slot: waiting for a slot does not count.
    let end = deadline ?? now() + timeout
    deadline = end
    let content = try await content(of: request, image, job)
    await read(content.bytes, at: job.priority)
    do throws(DeliveryError) {
      let (parcel, key) = try parcel(content, for: request, of: job)
      let tag = try await send(parcel, request.target, of: job, before: end)
      counters.delivered.increment()
      return Delivered(request, key: key, bytes: parcel.content.count, entityTag: tag)
    } catch {
      if error == .cancelled { throw .failed(.fetch(.cancelled)) }
      counters.failed.increment()
      log.warning(
        "failed to deliver an image", metadata: ["job": "\(job.id)", "error": "\(error)"])
      throw .failed(.delivery(error))
    }
  }

  private func content(
    of request: DeliveryRequest, _ image: StoredImage, _ job: Job
  ) async throws(FinishError) -> DeliveredContent {
    if let name = request.variant {
      return try await renderer.content(ofVariant: name, of: image, for: job)
    }
    return DeliveredContent(image, try await renderer.staging.open(image.digest))
  }

  /// Reads a file once on a thread that may block on the disk. The thread of all transfers then reads it from the page cache.
  private func read(_ bytes: StoredBytes, at priority: Priority) async {
    guard case .file = bytes else { return }
    await Task(executorPreference: threads.lane(at: priority)) {
      var offset = 0
      while offset < bytes.count {
        let count = bytes.read(at: offset, count: 1 << 20).count
        guard count > 0 else { return }
        offset += count
        await Task.yield()
      }
    }.value
  }

  private func parcel(
    _ content: DeliveredContent, for request: DeliveryRequest, of job: Job
  ) throws(DeliveryError) -> (DeliveryUpload, key: String?) {
    switch request.target {
    case .put(let url, let headers):
      return (content.parcel(to: .put(url, headers: headers)), nil)
    case .profile(let name, let template):
      let key = job.key(
        template, of: content.digest, ending: content.ending, variant: request.variant)
      guard let key else { throw .longKey(to: name) }
      return (content.parcel(to: .profile(name, key: key)), key)
    }
  }

  private func send(
    _ parcel: DeliveryUpload, _ target: DeliveryRequest.Target, of job: Job, before end: Timestamp
  ) async throws(DeliveryError) -> String? {
    guard let destinations else { throw .unknown(to: parcel.target.name) }
    var parcel = parcel
    parcel.owner = job.owner
    let permit: OriginPermit
    do throws(FetchError) { permit = try await slots.permit(target, for: job.owner) } catch {
      throw error == .cancelled ? .cancelled : .unreachable(to: parcel.target.name, error)
    }
    let left = max(.zero, end - now())
    let outcome = await withTaskGroup(of: Result<String?, DeliveryError>?.self) { [parcel] group in
      group.addTask { () -> Result<String?, DeliveryError>? in
        do throws(DeliveryError) { return .success(try await destinations.deliver(parcel)) } catch {
          return .failure(error)
        }
      }
      group.addTask {
        try? await Task.sleep(for: left)
        return nil
      }
      let first = await group.next() ?? nil
      group.cancelAll()
      return first
    }
    guard let outcome else {
      if Task.isCancelled { throw .cancelled }
      throw .unreachable(to: parcel.target.name, .timeout(seconds: timeout.inSeconds))
    }
    if case .failure(.unreachable(_, let error)) = outcome {
      permit.record(OriginState.Outcome(error, path: target.path))
    } else {
      permit.record(.answered)
    }
    return try outcome.get()
  }
}

/// The bytes of a delivery, with their digest, type and file extension.
struct DeliveredContent: Sendable {
  let bytes: StoredBytes
  let digest: ImageDigest
  let contentType: String
  let ending: String

  /// The bytes of the image itself.
  init(_ image: StoredImage, _ bytes: StoredBytes) {
    (self.bytes, digest) = (bytes, image.digest)
    (contentType, ending) = (
      image.description.format.contentType, image.description.format.fileExtension
    )
  }

  /// The bytes of a variant.
  init(_ bytes: StoredBytes, _ digest: ImageDigest, _ format: OutputFormat) {
    (self.bytes, self.digest) = (bytes, digest)
    (contentType, ending) = (format.contentType, format.fileExtension)
  }

  func parcel(to target: DeliveryUpload.Target) -> DeliveryUpload {
    DeliveryUpload(to: target, bytes, digest: digest, contentType: contentType)
  }
}

/// Limits deliveries: owners share the slots, a host named by clients gets two at a time, and each destination has a
/// circuit breaker.
final class DeliverySlots: Sendable {
  /// Deliveries that run at the same time.
  static let atOnce = 64
  /// Deliveries to one host that clients named. The operator's own destinations are limited only by the slots.
  static let perHost = 2

  /// The right to one delivery. It is released when the value is destroyed.
  struct Slot: Sendable {
    fileprivate let host: FairSemaphore<Owner>.Permit?
    fileprivate let slot: FairSemaphore<Owner>.Permit
  }

  private let slots = FairSemaphore<Owner>(.keepingQuarter(of: atOnce))
  private let hosts = Mutex<[String: (slots: FairSemaphore<Owner>, users: Int)]>([:])
  /// The circuit breakers. Their limits of transfers are never reached, because the slots are narrower.
  private let circuits: OriginLimits

  init() {
    var rules = OriginRules()
    (rules.maxTransfers, rules.unprovenTransfers) = (Self.atOnce, Self.atOnce)
    circuits = OriginLimits(rules, onPause: { _, _ in }, onRoom: {})
  }

  /// Waits for a slot. Returns nil if the task is cancelled.
  func acquire(_ place: DeliveryRequest.Target, for owner: Owner) async -> Slot? {
    var host: FairSemaphore<Owner>.Permit?
    if case .put(let url, _) = place {
      guard let permit = await acquire(host: url.authority, for: owner) else { return nil }
      host = permit
    }
    guard let slot = await slots.acquire(for: owner) else { return nil }
    return Slot(host: host, slot: slot)
  }

  private func acquire(host: String, for owner: Owner) async -> FairSemaphore<Owner>.Permit? {
    let slots = hosts.withLock { hosts in
      hosts[host, default: (FairSemaphore(.keepingQuarter(of: Self.perHost)), 0)].users += 1
      return hosts[host]?.slots
    }
    defer { releaseHost(host) }
    return await slots?.acquire(for: owner)
  }

  /// Forgets unused hosts.
  private func releaseHost(_ host: String) {
    hosts.withLock { hosts in
      hosts[host]?.users -= 1
      guard hosts.count > 1_024 else { return }
      hosts = hosts.filter { $0.value.users > 0 || !$0.value.slots.isIdle }
    }
  }

  /// Permits one request to a destination; the permit reports its outcome to the circuit breaker.
  /// - Throws: `.unreachable` while the circuit breaker is open.
  func permit(
    _ place: DeliveryRequest.Target, for owner: Owner
  ) async throws(FetchError) -> OriginPermit {
    try await circuits.admit(place.circuit, for: owner)
  }
}

extension DeliveryRequest.Target {
  fileprivate var circuit: String {
    switch self {
    case .put(let url, _): url.origin
    // No origin has this form.
    case .profile(let name, _): "destination \(name)"
    }
  }

  var path: String {
    switch self {
    case .put(let url, _): String(url.pathAndQuery.prefix { $0 != "?" })
    case .profile: ""
    }
  }
}
