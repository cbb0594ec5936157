internal import Jobs
internal import Logging
internal import Synchronization

/// Partial transfers: the bytes of transfers that broke off, from which a later transfer resumes.
struct PartialTransfers: Sendable {
  let spool: any ImageSpool
  let loads: Loads
  let now: WallClock
  let log: Logger

  /// The size of all partial transfers, in bytes.
  var bytes: Int { spool.partialBytes }

  /// Takes the partial transfer of the load's job out of the spool; nil if there is none. The load owns it from then on.
  func claim(for load: Load) async -> PartialTransfer? {
    let job = load.leader
    guard job.mayKeepBytes, let key = job.partial else { return nil }
    await loads.awaitEnds(of: key, before: load)
    do throws(StoreError) { return try await spool.takePartial(key) } catch {
      log.warning(
        "failed to read a partial transfer", metadata: ["job": "\(job.id)", "error": "\(error)"])
      return nil
    }
  }

  /// Records the validator of the bytes in a stage, so that they can be kept. Does nothing if no transfer could resume
  /// after them.
  func identify(_ staged: any StagedImage, of load: Load, _ response: FetchedResponse) {
    guard load.leader.mayKeepBytes, let key = load.leader.partial,
      let partial = response.partial(now: now())
    else { return }
    staged.identify(key, partial)
  }

  /// Keeps the received bytes for the next request, unless the bytes themselves caused the failure.
  func keep(_ staged: any StagedImage, of load: Load, after failure: JobFailure) async {
    guard case .fetch = failure, !load.discardsBytes else { return }
    do throws(StoreError) { try await staged.keepPartial() } catch {
      log.warning(
        "failed to store a partial transfer",
        metadata: ["job": "\(load.leader.id)", "error": "\(error)"])
    }
  }

  /// Deletes the partial transfer of a purged job, by its ``Job/partial``.
  func delete(_ key: Fingerprint) async {
    do throws(StoreError) { try await spool.deletePartial(key) } catch {
      log.error("failed to delete a partial transfer", metadata: ["error": "\(error)"])
    }
  }
}

extension Job {
  fileprivate var mayKeepBytes: Bool { submission.cacheMode != .noStore }
}

/// Resuming after the bytes of an earlier transfer (RFC 9110 sections 13.1.5 and 14).
extension PartialTransfer {
  /// The fields that request the missing bytes, or the whole image if the representation has changed.
  /// - Parameter asked: the job's URL. With a `cache_key` it may differ from the URL of the earlier request.
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
    // A range of a coded body does not continue decoded bytes.
    guard answer.headers.contentCodings.isEmpty, let range = answer.contentRange,
      let total = total(with: range),
      response.url == answer.url || (!response.isRedirected && answer.redirects.isEmpty),
      range.first == count, range.last + 1 == total,
      response.total == nil || response.total == total,
      answer.contentLength.map({ $0 == total - count }) ?? true
    else { return false }
    return matchesValidator(of: answer)
  }

  /// The size of the whole image. If the range does not state it (`bytes 5-9/*`), the first response did.
  func total(with range: ContentRange) -> Int? { range.total ?? response.total }

  /// In reply to `If-Range` an origin must repeat the entity tag, but not the date (section 15.3.7).
  private func matchesValidator(of answer: FetchedResponse) -> Bool {
    if response.validator.hasPrefix("\"") { return answer.field("etag") == response.validator }
    return answer.field("last-modified").map { $0 == response.validator } ?? true
  }
}

/// The missing bytes of an image. Checks that their number is that of `Content-Range`, which a chunked body, or one that
/// ends with its connection, does not ensure.
final class RestOfImage: ImageBytes {
  /// The size of the whole image, in bytes.
  let total: Int
  private let count: Int
  private let body: any ImageBytes
  private let received = Mutex(0)

  /// - Parameter response: a response that continues the kept bytes. Returns nil if the image's size is unknown.
  init?(_ response: FetchedResponse, after kept: PartialTransfer) {
    guard let total = response.contentRange.flatMap({ kept.total(with: $0) }) else { return nil }
    (self.total, count, body) = (total, total - kept.count, response.body)
  }

  /// Whether more bytes arrived than the range has. It is then unknown which of them belong to the image.
  var isExceeded: Bool { received.withLock { $0 > count } }

  var codedCount: Int { body.codedCount }

  /// - Throws: `.truncated` also if there are too many bytes, or none.
  func next() async throws(FetchError) -> [UInt8]? {
    let piece: [UInt8]?
    // A body without bytes is a truncated one here: the image has the kept bytes.
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
  /// The range of a 206 response (RFC 9110 section 14.4); nil if there is none.
  var contentRange: ContentRange? { field("content-range").flatMap(ContentRange.init) }

  /// The `Last-Modified` of the response (RFC 9110 section 8.8.2); nil if it is missing or not a valid date.
  func lastModified(now: Timestamp) -> Timestamp? {
    headers.last { $0.name.lowercased() == "last-modified" }
      .flatMap { Timestamp(httpDate: $0.value, now: now) }
  }

  /// The value of the last field of that name.
  /// - Parameter name: in lower case.
  func field(_ name: String) -> String? { headers.last { $0.name.lowercased() == name }?.value }

  /// The data needed to resume this response later; nil if it cannot be resumed.
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
  /// Whether the field is a `Cache-Control` with `no-store` (RFC 9111 section 5.2.2.5).
  fileprivate var forbidsStoring: Bool {
    name.lowercased() == "cache-control"
      && value.lowercased().split(separator: ",").contains { part in
        part.split(separator: " ").first == "no-store"
      }
  }
}
