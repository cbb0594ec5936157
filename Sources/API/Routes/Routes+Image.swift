internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `GET|HEAD /jobs/{id}/image`.
extension Routes {
  func image(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    // The job is checked before the query, so that another owner's job reveals nothing.
    var snapshot = try await current(exchange)
    var query = Query(exchange.request.query)
    let wait = Wait(&query, exchange.fields, longest: configuration.maxWait)
    let request = ImageRequest(&query, self, isOfJob: true)
    try query.checkComplete()

    let named = try request.named(of: snapshot.job.submission)
    if let wait { snapshot = try await waited(exchange, snapshot, until: .finished, wait) }
    var response = try await imageResponse(of: snapshot, request, named: named, exchange)
    response.fields.acknowledge(wait)
    return response
  }

  /// The response with the job's image or a placeholder; 202 if the image is not ready.
  func imageResponse(
    of snapshot: JobSnapshot, _ request: ImageRequest, named: VariantRequest?,
    _ exchange: AuthorizedRequest
  ) async throws(Problem) -> Response {
    do throws(Problem) {
      if let digest = request.digest, let image = snapshot.job.image, image.digest != digest {
        throw Problem(
          .imageUnavailable, "The job's image has a different SHA-256: \(image.digest.hex).")
      }
      if var response = try await image(
        of: snapshot.job, as: request.variant, named: named, exchange)
      {
        if request.digest != nil {
          response.fields[.cacheControl] = "private, max-age=31536000, immutable"
        }
        if request.allowsPlaceholder { response.fields[.imagePhase] = snapshot.job.phase.rawValue }
        return response
      }
      guard request.allowsPlaceholder else { return pending(snapshot) }
      return try await placeholder(.loading, for: snapshot.job, request.variant, exchange)
    } catch
      where request.allowsPlaceholder
      && (error.code == .request(.imageUnavailable) || error.code == .request(.imageGone))
    {
      return try await placeholder(.failure, for: snapshot.job, request.variant, exchange)
    }
  }

  /// The response with the finished job's image or a variant of it; nil while the job is not finished.
  func image(
    of job: Job, as request: VariantQuery? = nil, named: VariantRequest? = nil,
    _ exchange: AuthorizedRequest
  ) async throws(Problem) -> Response? {
    switch job.phase {
    case .queued, .loading: return nil
    case .failure, .cancelled: throw Self.unavailable(job)
    case .success: break
    }
    guard let image = job.image, image.isKept else { throw Problem(JobsError.imageGone) }
    let rendition =
      if let named { try rendition(of: image, named) } else {
        try rendition(of: image, request, exchange)
      }
    if rendition == nil, image.bundle != nil { throw Self.originalDropped(job) }
    // The ETag of a variant is the digest of its bytes, so it is known only after rendering.
    let rendered = try await bytes(of: rendition, for: job)
    let entityTag = rendered?.entityTag ?? image.entityTag
    var fields = Self.fields(of: image, rendition?.variant.format, job, at: service.now())
    fields[.eTag] = entityTag
    if request?.isAuto == true { fields[.vary] = "Accept" }
    if Conditions.fail(exchange.fields, entityTag, modifiedAt: image.modifiedAt) {
      throw Problem(
        .preconditionFailed,
        "The image has a different ETag or a later Last-Modified. Get it again.")
    }
    if Conditions.isCurrent(exchange.fields, entityTag, modifiedAt: image.modifiedAt) {
      fields[.contentType] = nil
      fields[.contentDisposition] = nil
      let count = rendered?.bytes.count ?? image.bytes
      return Response(status: .notModified, fields: fields, content: .omitted(count: count))
    }
    let bytes = if let rendered { rendered.bytes } else { try await originalBytes(of: job) }
    let (content, share) = try await sendable(bytes, exchange)
    // A variant has the date of its image, but rendering it again may give other bytes. So dates never match for
    // variants.
    let mayBePart = Conditions.rangeHolds(
      exchange.fields, entityTag, modifiedAt: rendered == nil ? image.modifiedAt : nil,
      at: service.now())
    var response = try Self.answer(content, exchange, fields, mayBePart: mayBePart)
    response.retained = share ?? rendered?.share
    return response
  }

  /// Returns an image's bytes, and a reservation to keep until they are sent.
  ///
  /// A client may read slowly or never, so bytes in memory are counted in ``images``. If that is full, they are moved
  /// to a file. At most 4 KiB are not counted.
  func sendable(
    _ stored: StoredBytes, _ exchange: AuthorizedRequest
  ) async throws(Problem) -> (StoredBytes, (any Sendable & AnyObject)?) {
    guard case .memory(let bytes) = stored, bytes.count > 4 << 10 else { return (stored, nil) }
    let share = images.allocation(for: exchange.client)
    if share.reserve(bytes.count) { return (stored, share) }
    return (try await callEngine { () throws(JobsError) in try await service.file(bytes) }, nil)
  }

  private func bytes(
    of rendition: Rendition?, for job: Job
  ) async throws(Problem) -> RenderedBytes? {
    guard let rendition else { return nil }
    return try await callEngine { () throws(JobsError) in
      try await service.open(rendition, for: job)
    }
  }

  private func originalBytes(of job: Job) async throws(Problem) -> StoredBytes {
    try await callEngine { () throws(JobsError) in try await service.openImage(of: job) }
  }

  private func rendition(
    of image: StoredImage, _ request: VariantRequest
  ) throws(Problem) -> Rendition {
    let variant = request.variant(
      of: image.description.format, isTransparent: image.description.hasAlpha,
      formats: service.outputFormats)
    guard let rendition = service.rendition(of: image, as: variant) else {
      throw Problem(JobsError.unrenderable(.unsupportedFormat(name: nil)))
    }
    return rendition
  }

  /// The rendition for a request; nil if the request asks for the original.
  private func rendition(
    of image: StoredImage, _ request: VariantQuery?, _ exchange: AuthorizedRequest
  ) throws(Problem) -> Rendition? {
    guard let request else { return nil }
    let variant = request.variant(
      of: image.description, Accept(exchange.fields[.accept]), formats: service.outputFormats)
    guard let rendition = service.rendition(of: image, as: variant) else {
      throw Problem(JobsError.unrenderable(.unsupportedFormat(name: nil)))
    }
    try check(rendition, request)
    return rendition
  }

  /// Throws if the rendition is larger than the configuration allows.
  func check(_ rendition: Rendition, _ request: VariantQuery) throws(Problem) {
    let (width, height) = (rendition.width, rendition.height)
    let limits = configuration.limits
    var mistakes = RequestErrors()
    let place = FieldError.Place.parameter(
      request.options.width == nil && request.options.height != nil ? "height" : "width")
    if max(width, height) > limits.maxDimension {
      mistakes.add(
        place, .invalidOption,
        "\(width) × \(height) pixels: a side is longer than \(limits.maxDimension). Request a smaller variant."
      )
    } else if width > limits.maxPixels / max(1, height) {
      mistakes.add(
        place, .invalidOption,
        "\(width) × \(height) pixels are more than \(limits.maxPixels). Request a smaller variant.")
    }
    try mistakes.check()
  }

  private static func answer(
    _ bytes: StoredBytes, _ exchange: AuthorizedRequest, _ fields: HTTPFields, mayBePart: Bool
  ) throws(Problem) -> Response {
    var fields = fields
    // Ranges are defined for GET only (RFC 9110 section 14.2).
    let mayBePart = mayBePart && exchange.request.method == .get
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
    return Response(status: .accepted, fields: fields, content: .bytes(document(of: snapshot)))
  }

  private static func originalDropped(_ job: Job) -> Problem {
    let names = job.submission.variants.map(\.name).joined(separator: ", ")
    return Problem(
      .imageGone, "The job keeps only its variants. Request one of \(names) with ?variant=NAME.")
  }

  private static func unavailable(_ job: Job) -> Problem {
    let why = job.phase == .cancelled ? "was cancelled" : "failed"
    var problem = Problem(
      .imageUnavailable, "The job \(why). POST /jobs/\(job.id)/fetch tries again.")
    problem.failure = job.failure
    return problem
  }
}

/// The header fields of an image.
extension Routes {
  /// - Parameter format: the format of a variant; nil: the original.
  private static func fields(
    of image: StoredImage, _ format: OutputFormat?, _ job: Job, at now: Timestamp
  ) -> HTTPFields {
    let own = image.description.format
    let ending = format?.fileExtension ?? own.fileExtension
    return [
      .contentType: format?.contentType ?? own.contentType,
      // Never later than `Date` (RFC 9110 section 8.8.2.1), even if the origin's date is.
      .lastModified: min(image.modifiedAt, now).httpDate,
      .acceptRanges: "bytes",
      // The same path may have a different image after the job is fetched again.
      .cacheControl: "private, no-cache",
      .cacheStatus: cacheStatus(job, at: now),
      .contentDisposition: "inline; filename=\"\(fileName(of: image, job, ending))\"",
      .xContentTypeOptions: "nosniff",
      .contentSecurityPolicy: contentSecurityPolicy,
    ]
  }

  /// The image can't run scripts or load anything. Inline styles are allowed for the page that browsers make around an
  /// image.
  static let contentSecurityPolicy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"

  /// `Cache-Status` (RFC 9211). Local and uploaded images bypass the cache.
  private static func cacheStatus(_ job: Job, at now: Timestamp) -> String {
    guard let outcome = job.cache else { return "imagefetch; fwd=bypass" }
    // Negative if the response is stale, or has become stale since the job got it.
    let ttl = outcome.freshUntil.map { "; ttl=\(($0 - now).wholeSeconds)" } ?? ""
    let mode = job.submission.cacheMode
    return switch outcome.status {
    case .hit, .stale: "imagefetch; hit\(ttl)"
    case .miss:
      // Only a stored response has a freshness lifetime.
      "imagefetch; fwd=\(mode == .reload ? "request" : "uri-miss")"
        + (ttl.isEmpty ? "" : "; stored\(ttl)")
    case .revalidated:
      "imagefetch; fwd=\(mode == .noCache ? "request" : "stale"); fwd-status=304\(ttl)"
    case .bypass: "imagefetch; fwd=bypass"
    }
  }

  /// The last path segment of the source, without characters that are special in shells, paths or header fields. The
  /// extension matches the format.
  static func fileName(of image: StoredImage, _ job: Job, _ ending: String) -> String {
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
    return "\(base).\(ending)"
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
  /// Rounds down, also below zero.
  fileprivate var wholeSeconds: Int64 {
    components.attoseconds < 0 ? components.seconds - 1 : components.seconds
  }
}

extension StoredBytes {
  /// A range of the bytes as response content.
  func content(_ range: Range<Int>) -> Response.Content {
    switch self {
    case .memory(let bytes): return .bytes(range.count == bytes.count ? bytes : Array(bytes[range]))
    case .file(let stored, let part):
      let start = part.lowerBound + range.lowerBound
      // Files that the kernel can't send are read into memory. None of the current stores opens such a file.
      guard let file = stored as? any SendableFile else {
        return .bytes(stored.read(at: start, count: range.count))
      }
      return .file(descriptor: file.descriptor, offset: start, count: range.count, owner: file)
    }
  }
}

/// `GET|HEAD /jobs/{id}/preview`.
extension Routes {
  func preview(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    let job = try await current(exchange).job
    if let response = try await image(of: job, exchange) { return response }
    // Only the instance that loads the job has its preview.
    guard let preview = service.preview(of: job.id) else {
      return Response(status: .noContent, fields: [.cacheControl: "no-store"])
    }
    let fields: HTTPFields = [
      .contentType: preview.format.contentType,
      .cacheControl: "no-store",
      .imagePreview: "scan=\(preview.scan)",
      .xContentTypeOptions: "nosniff",
      .contentSecurityPolicy: Self.contentSecurityPolicy,
    ]
    let (bytes, share) = try await sendable(.memory(preview.bytes), exchange)
    return Response(
      status: .ok, fields: fields, content: bytes.content(0..<bytes.count), keeping: share)
  }
}

/// Placeholder images (`placeholder=true`) for images that are not available.
extension Routes {
  func placeholder(
    _ placeholder: Placeholder, for job: Job, _ wish: VariantQuery?, _ exchange: AuthorizedRequest
  ) async throws(Problem) -> Response {
    let image = service.placeholderImage(for: placeholder)
    // Without options for a variant, the image is sent as it is.
    guard let wish else {
      // All responses share these bytes.
      return answer(.memory(image.bytes), image.description.format.contentType, for: job)
    }
    let variant = wish.variant(
      of: image.description, Accept(exchange.fields[.accept]), formats: service.outputFormats)
    guard let rendition = service.rendition(of: image, as: variant) else {
      throw Problem(JobsError.unrenderable(.unsupportedFormat(name: nil)))
    }
    try check(rendition, wish)
    let rendered = try await callEngine { () throws(JobsError) in
      try await service.openPlaceholder(rendition, for: job)
    }
    let (content, share) = try await sendable(rendered.bytes, exchange)
    var response = answer(content, rendition.variant.format.contentType, for: job)
    response.retained = share ?? rendered.share
    if wish.isAuto { response.fields[.vary] = "Accept" }
    return response
  }

  private func answer(_ bytes: StoredBytes, _ contentType: String, for job: Job) -> Response {
    // The job succeeded, but its image is no longer stored.
    let phase = job.phase == .success ? "gone" : job.phase.rawValue
    let fields: HTTPFields = [
      .contentType: contentType,
      .cacheControl: "no-store",
      .imagePhase: phase,
      .xContentTypeOptions: "nosniff",
      .contentSecurityPolicy: Self.contentSecurityPolicy,
    ]
    return Response(status: .ok, fields: fields, content: bytes.content(0..<bytes.count))
  }
}
