internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `GET|HEAD /jobs/{id}/image`.
extension Routes {
  func image(_ exchange: Exchange) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    let wait = Wait(&query, exchange.fields, longest: configuration.maxWait)
    for name in Self.upcoming where query.one(name) != nil {
      query.wrong(name, "It is not available in this version.")
    }
    try query.finish()

    var snapshot = try await current(exchange)
    if let wait { snapshot = try await waited(exchange, snapshot, until: .finished, wait) }
    var response = try await image(of: snapshot.job, exchange) ?? pending(snapshot)
    if let applied = wait?.preferenceApplied {
      response.fields.append(HTTPField(name: .preferenceApplied, value: applied))
    }
    return response
  }

  /// Query members of the contract that ask for another picture than the origin's.
  private static var upcoming: [String] {
    ["width", "height", "fit", "format", "quality", "background", "dpr", "placeholder"]
  }

  /// The finished job's image; nil while it isn't finished.
  func image(of job: Job, _ exchange: Exchange) async throws(Problem) -> Response? {
    switch job.phase {
    case .queued, .loading: return nil
    case .failure, .cancelled: throw Self.unavailable(job)
    case .success: break
    }
    guard let image = job.image, image.isKept else { throw Self.gone }
    var fields = Self.fields(of: image, job, at: service.now())
    if Conditions.isCurrent(exchange.fields, image.entityTag, modifiedAt: image.modifiedAt) {
      fields[.contentType] = nil
      fields[.contentDisposition] = nil
      return Response(status: .notModified, fields: fields)
    }
    let bytes = try await asking { () throws(JobsError) in
      try await service.openImage(image.digest)
    }
    guard let bytes else { throw Self.gone }
    return try Self.answer(bytes, exchange, fields, image)
  }

  private static func answer(
    _ bytes: StoredBytes, _ exchange: Exchange, _ fields: HTTPFields, _ image: StoredImage
  ) throws(Problem) -> Response {
    var fields = fields
    // Ranges are defined for GET alone (RFC 9110 section 14.2).
    let mayBePart =
      exchange.request.method == .get
      && Conditions.rangeHolds(exchange.fields, image.entityTag, modifiedAt: image.modifiedAt)
    switch ByteRange(mayBePart ? exchange.fields[.range] : nil, count: bytes.count) {
    case .whole:
      return Response(status: .ok, fields: fields, content: bytes.content(0..<bytes.count))
    case .part(let range):
      fields[.contentRange] = "bytes \(range.lowerBound)-\(range.upperBound - 1)/\(bytes.count)"
      return Response(status: .partialContent, fields: fields, content: bytes.content(range))
    case .unsatisfiable:
      throw Problem(.rangeNotSatisfiable, "The image has \(bytes.count) bytes.")
        .with(.contentRange, "bytes */\(bytes.count)")
    }
  }

  private func pending(_ snapshot: JobSnapshot) -> Response {
    let fields: HTTPFields = [
      .contentType: "application/json", .cacheControl: "no-store", .retryAfter: "1",
      .contentLocation: "/jobs/\(snapshot.job.id)",
    ]
    return Response(status: .accepted, fields: fields, content: .bytes(snapshot.document))
  }

  private static func unavailable(_ job: Job) -> Problem {
    let why = job.phase == .cancelled ? "was cancelled" : "failed"
    var problem = Problem(
      .imageUnavailable, "The job \(why). POST /jobs/\(job.id)/fetch asks for the image again.")
    problem.failure = job.failure
    return problem
  }

  private static let gone = Problem(
    .imageGone, "The image gave way to newer ones. POST …/fetch asks for it again.")
}

/// The header fields of an image.
extension Routes {
  private static func fields(
    of image: StoredImage, _ job: Job, at now: Timestamp
  ) -> HTTPFields {
    [
      .contentType: image.description.format.contentType,
      .eTag: image.entityTag,
      .lastModified: image.modifiedAt.httpDate,
      .acceptRanges: "bytes",
      // The same path may have another image after the job was fetched again.
      .cacheControl: "private, no-cache",
      .cacheStatus: cacheStatus(job, at: now),
      .contentDisposition: "inline; filename=\"\(fileName(of: image, job))\"",
      .xContentTypeOptions: "nosniff",
      .contentSecurityPolicy: contentSecurityPolicy,
    ]
  }

  /// An image opened by itself runs and loads nothing.
  static let contentSecurityPolicy = "default-src 'none'; sandbox"

  /// RFC 9211. What never went through the cache, as local and captured images, bypassed it.
  private static func cacheStatus(_ job: Job, at now: Timestamp) -> String {
    guard let outcome = job.cache else { return "imagefetch; fwd=bypass" }
    // Negative for a stale response, and for one that became stale since the job has it.
    let ttl = outcome.freshUntil.map { "; ttl=\(($0 - now).wholeSeconds)" } ?? ""
    let mode = job.submission.cacheMode
    return switch outcome.status {
    case .hit, .stale: "imagefetch; hit\(ttl)"
    case .miss:
      // A freshness is told of what was stored alone.
      "imagefetch; fwd=\(mode == .reload ? "request" : "uri-miss")"
        + (ttl.isEmpty ? "" : "; stored\(ttl)")
    case .revalidated:
      "imagefetch; fwd=\(mode == .noCache ? "request" : "stale"); fwd-status=304\(ttl)"
    case .bypass: "imagefetch; fwd=bypass"
    }
  }

  /// The source's last name without what could mean something to a shell, a path or a header; its ending
  /// tells what the bytes are.
  static func fileName(of image: StoredImage, _ job: Job) -> String {
    let path: Substring
    switch job.submission.source {
    case .url(let url, _): path = (image.url ?? url).pathAndQuery.prefix { $0 != "?" }
    case .local(let name): path = name[...]
    case .captured: path = "image"
    }
    let name = path[(path.lastIndex(of: "/").map(path.index(after:)) ?? path.startIndex)...]
    let stem = name[..<(name.lastIndex(of: ".") ?? name.endIndex)]
    var safe: [UInt8] = []
    var rest = stem.utf8[...]
    while let byte = rest.popFirst(), safe.count < 64 {
      if byte == UInt8(ascii: "%") {
        rest = rest.dropFirst(2)
      } else if isPlain(byte) {
        safe.append(byte)
      }
    }
    let base = safe.isEmpty ? "image" : String(decoding: safe, as: UTF8.self)
    return "\(base).\(image.description.format.fileExtension)"
  }

  private static func isPlain(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
      true
    default: false
    }
  }
}

extension Duration {
  /// The last whole second not after it: towards the past below zero.
  fileprivate var wholeSeconds: Int64 {
    components.attoseconds < 0 ? components.seconds - 1 : components.seconds
  }
}

extension StoredBytes {
  /// A part of them, to be sent.
  fileprivate func content(_ range: Range<Int>) -> Response.Content {
    switch place {
    case .file(let descriptor):
      .file(descriptor: descriptor, offset: range.lowerBound, count: range.count, owner: self)
    case .memory(let bytes): .bytes(range.count == bytes.count ? bytes : Array(bytes[range]))
    }
  }
}
