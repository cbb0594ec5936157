internal import Jobs
internal import Logging
internal import Synchronization

/// What came of transfers that broke off, so that a later one goes on where they ended.
struct KeptTransfers: Sendable {
  let spool: any ImageSpool
  let loads: Loads
  let now: WallClock
  let log: Logger

  /// What is kept in all.
  var bytes: Int { spool.keptBytes }

  /// What is kept of an earlier transfer for the load's job: its own from now on.
  func take(for load: Load) async -> KeptTransfer? {
    let job = load.leader
    guard job.mayKeepBytes, let key = job.partial else { return nil }
    await loads.awaitEnds(of: key, before: load)
    do throws(StoreError) { return try await spool.take(key) } catch {
      log.warning(
        "kept bytes can't be read", metadata: ["job": "\(job.id)", "error": "\(error)"])
      return nil
    }
  }

  /// Says what the bytes of a stage are, so that they can be set aside; where another transfer could not go on from
  /// them, nothing is said.
  func identify(_ staged: any StagedImage, of load: Load, _ response: FetchedResponse) {
    guard load.leader.mayKeepBytes, let key = load.leader.partial,
      let partial = response.partial(now: now())
    else { return }
    staged.identify(key, partial)
  }

  /// Leaves what came to the next request, unless it was the bytes' fault.
  func setAside(_ staged: any StagedImage, of load: Load, after failure: JobFailure) async {
    guard case .fetch = failure, !load.forgetsBytes else { return }
    do throws(StoreError) { try await staged.setAside() } catch {
      log.warning(
        "broken-off bytes can't be kept",
        metadata: ["job": "\(load.leader.id)", "error": "\(error)"])
    }
  }

  /// Forgets what is kept for a job that was purged, under its ``Job/partial``.
  func forget(_ key: Fingerprint) async {
    do throws(StoreError) { try await spool.drop(key) } catch {
      log.error("kept bytes can't be removed", metadata: ["error": "\(error)"])
    }
  }
}

extension Job {
  fileprivate var mayKeepBytes: Bool { submission.cacheMode != .noStore }
}

/// Going on where an earlier transfer ended (RFC 9110 sections 13.1.5 and 14).
extension KeptTransfer {
  /// Asks for the rest, or for the whole if it is another representation by now.
  /// - Parameter asked: the URL that the job asks for; by a `cache_key` it stands for the one that was asked before.
  func conditions(asking asked: SourceURL) -> FetchConditions {
    FetchConditions(
      url: response.isRedirected ? response.url : asked,
      fields: [
        HeaderField(name: "Range", value: "bytes=\(count)-"),
        HeaderField(name: "If-Range", value: response.validator),
      ])
  }

  /// Whether a 206 response is the rest of these bytes: its URL, unit, start, total and validator all agree.
  func isContinued(by answer: FetchedResponse) -> Bool {
    // A part of what is coded continues no decoded bytes.
    guard answer.headers.contentCodings.isEmpty, let range = answer.contentRange,
      let total = total(with: range),
      response.url == answer.url || (!response.isRedirected && answer.redirects.isEmpty),
      range.first == count, range.last + 1 == total,
      response.total == nil || response.total == total,
      answer.contentLength.map({ $0 == total - count }) ?? true
    else { return false }
    return agrees(answer)
  }

  /// The size of the whole image. Where a part does not say it (`bytes 5-9/*`), the first response did.
  func total(with range: ContentRange) -> Int? { range.total ?? response.total }

  /// With `If-Range` an origin needn't repeat the date, but has to repeat the entity tag (section 15.3.7).
  private func agrees(_ answer: FetchedResponse) -> Bool {
    if response.validator.hasPrefix("\"") { return answer.field("etag") == response.validator }
    return answer.field("last-modified").map { $0 == response.validator } ?? true
  }
}

/// The rest of an image, as many bytes as its `Content-Range` says: a body in chunks, or one that ends with its
/// connection, says nothing of that itself.
final class RestOfImage: ImageBytes {
  /// Of the whole image.
  let total: Int
  private let count: Int
  private let body: any ImageBytes
  private let received = Mutex(0)

  /// - Parameter response: one that continues the kept bytes; nil where nothing says how long the image is.
  init?(_ response: FetchedResponse, after kept: KeptTransfer) {
    guard let total = response.contentRange.flatMap({ kept.total(with: $0) }) else { return nil }
    (self.total, count, body) = (total, total - kept.count, response.body)
  }

  /// Whether more came than there is: which bytes are the image's nobody knows.
  var isExceeded: Bool { received.withLock { $0 > count } }

  var codedCount: Int { body.codedCount }

  /// - Throws: `.truncated` also where it is exceeded, or empty.
  func next() async throws(FetchError) -> [UInt8]? {
    let piece: [UInt8]?
    // Without a byte it ended early, as with any: the image has those that are kept.
    do throws(FetchError) { piece = try await body.next() } catch .noData { piece = nil }
    let sum = received.withLock { received in
      received += piece?.count ?? 0
      return received
    }
    guard piece == nil ? sum == count : sum <= count else {
      throw .truncated(received: sum, expected: count)
    }
    return piece
  }
}

extension FetchedResponse {
  /// The range of a part (RFC 9110 section 14.4); nil where there is none.
  var contentRange: ContentRange? { field("content-range").flatMap(ContentRange.init) }

  /// When the origin says that it last changed the image (RFC 9110 section 8.8.2); nil where it doesn't say, or says
  /// what can't be read.
  func lastModified(now: Timestamp) -> Timestamp? {
    headers.last { $0.name.lowercased() == "last-modified" }
      .flatMap { Timestamp(httpDate: $0.value, now: now) }
  }

  /// The last of the fields of that name, in lower case.
  func field(_ name: String) -> String? { headers.last { $0.name.lowercased() == name }?.value }

  /// What must be known to go on with this response later; nil where that can't be done.
  func partial(now: Timestamp) -> PartialResponse? {
    guard status != 203, field("accept-ranges")?.lowercased() != "none",
      headers.contentCodings.isEmpty,
      !headers.contains(where: \.forbidsStoring),
      !redirects.contains(where: { $0.headers.contains(where: \.forbidsStoring) }),
      let validator = validator(now: now)
    else { return nil }
    return PartialResponse(
      url: url, isRedirected: !redirects.isEmpty, validator: validator, total: contentLength)
  }

  /// The strong validator: an entity tag that isn't weak; else a Last-Modified that lies a second or more before the
  /// response's Date (section 8.8.2.2). A weak entity tag says that not even the date is to be trusted.
  func validator(now: Timestamp) -> String? {
    if let tag = field("etag") {
      return tag.hasPrefix("\"") && tag.hasSuffix("\"") && tag.utf8.count >= 2 ? tag : nil
    }
    guard let modified = field("last-modified"), let date = field("date"),
      let changed = Timestamp(httpDate: modified, now: now),
      let sent = Timestamp(httpDate: date, now: now), sent - changed >= .seconds(1)
    else { return nil }
    return modified
  }
}

extension HeaderField {
  /// Whether it is a `Cache-Control` with no-store (RFC 9111 section 5.2.2.5).
  fileprivate var forbidsStoring: Bool {
    name.lowercased() == "cache-control"
      && value.lowercased().split(separator: ",").contains { part in
        part.split(separator: " ").first == "no-store"
      }
  }
}
