internal import Jobs
internal import Logging
internal import Metrics

/// Brings the images of jobs where they are to go, before their success is told.
///
/// In come jobs whose image, with their variants, is there for as long as the load; out comes, for each, what was brought
/// where, or why not. Each job's is its own matter: one that is cancelled meanwhile stops, the others go on.
struct JobDeliveries: Sendable {
  /// What came of a job's deliveries.
  typealias Outcome = Result<[Delivered], JobFailure>

  /// Nil: nothing is brought anywhere.
  let destinations: (any ImageDestinations)?
  let images: any ImageStore
  let snapshots: JobSnapshots
  let log: Logger
  private let counters = (
    delivered: Counter(
      label: "imagefetch_deliveries_total", dimensions: [("outcome", "delivered")]),
    failed: Counter(label: "imagefetch_deliveries_total", dimensions: [("outcome", "failed")])
  )
  /// Jobs of one load whose images are on their way at the same time.
  private static let atOnce = 8

  init(
    destinations: (any ImageDestinations)?, images: any ImageStore, snapshots: JobSnapshots,
    log: Logger
  ) {
    (self.destinations, self.images) = (destinations, images)
    (self.snapshots, self.log) = (snapshots, log)
  }

  /// - Parameter made: the image, and the variants that the jobs want.
  func deliver(for jobs: [Job], _ made: JobVariants) async -> [JobID: Outcome] {
    await withTaskGroup(of: (JobID, Outcome).self, returning: [JobID: Outcome].self) { group in
      var outcomes: [JobID: Outcome] = [:]
      for (index, job) in jobs.enumerated() {
        if index >= Self.atOnce, let (id, outcome) = await group.next() { outcomes[id] = outcome }
        group.addTask { (job.id, await self.whileWanted(job, made)) }
      }
      for await (id, outcome) in group { outcomes[id] = outcome }
      return outcomes
    }
  }

  /// Delivers until the job is cancelled or gone, or the service stops.
  private func whileWanted(_ job: Job, _ made: JobVariants) async -> Outcome {
    await withTaskGroup(of: Outcome?.self, returning: Outcome.self) { group in
      group.addTask {
        do throws(JobFailure) { return .success(try await deliver(job, made)) } catch {
          return .failure(error)
        }
      }
      group.addTask {
        while snapshots.peek(job.id)?.job.phase == .loading {
          do { try await Task.sleep(for: .milliseconds(100)) } catch { return nil }
        }
        return nil
      }
      let first = await group.next() ?? nil
      group.cancelAll()
      return first ?? .failure(.fetch(.cancelled))
    }
  }

  private func deliver(_ job: Job, _ made: JobVariants) async throws(JobFailure) -> [Delivered] {
    var delivered: [Delivered] = []
    for request in job.submission.deliveries {
      let content = try await content(of: request, of: job, made)
      let (parcel, key) = try parcel(content, for: request, of: job)
      do throws(DeliveryError) {
        let tag = try await send(parcel)
        delivered.append(
          Delivered(request, key: key, bytes: parcel.content.count, entityTag: tag))
        counters.delivered.increment()
      } catch {
        if error == .cancelled { throw .fetch(.cancelled) }
        counters.failed.increment()
        log.warning(
          "an image could not be delivered", metadata: ["job": "\(job.id)", "error": "\(error)"])
        throw .delivery(error)
      }
    }
    return delivered
  }

  private func parcel(
    _ content: DeliveredContent, for request: DeliveryRequest, of job: Job
  ) throws(JobFailure) -> (Parcel, key: String?) {
    switch request.target {
    case .put(let url, let headers):
      return (content.parcel(to: .put(url, headers: headers)), nil)
    case .profile(let name, let template):
      let key = job.key(
        template, of: content.digest, ending: content.ending, variant: request.variant)
      guard let key else { throw .delivery(.longKey(to: name)) }
      return (content.parcel(to: .profile(name, key: key)), key)
    }
  }

  private func content(
    of request: DeliveryRequest, of job: Job, _ made: JobVariants
  ) async throws(JobFailure) -> DeliveredContent {
    if let name = request.variant {
      return try made.content(ofVariant: name, for: job)
    }
    if let content = made.original { return content }
    do throws(StoreError) {
      if let stored = try await images.open(made.image.digest) {
        return DeliveredContent(made.image, stored)
      }
    } catch {
      log.error("an image to be delivered can't be read", metadata: ["error": "\(error)"])
      throw JobFailure(error)
    }
    throw .internal
  }

  private func send(_ parcel: Parcel) async throws(DeliveryError) -> String? {
    guard let destinations else { throw .unknown(to: parcel.target.name) }
    return try await destinations.deliver(parcel)
  }
}

/// Bytes to be delivered.
struct DeliveredContent: Sendable {
  let bytes: StoredBytes
  let digest: ImageDigest
  let contentType: String
  let ending: String

  /// An image's own.
  init(_ image: StoredImage, _ bytes: StoredBytes) {
    (self.bytes, digest) = (bytes, image.digest)
    (contentType, ending) = (
      image.description.format.contentType, image.description.format.fileExtension
    )
  }

  /// A variant's.
  init(_ bytes: StoredBytes, _ format: OutputFormat) {
    (self.bytes, contentType, ending) = (bytes, format.contentType, format.fileExtension)
    digest = ImageDigest(of: bytes.read(at: 0, count: bytes.count))
  }

  func parcel(to target: Parcel.Target) -> Parcel {
    Parcel(to: target, bytes, digest: digest, contentType: contentType)
  }
}
