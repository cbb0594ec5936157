internal import Crypto
internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `POST /jobs`.
extension Routes {
  func submit(_ exchange: Exchange) async throws(Problem) -> Response {
    guard service.state != .draining else { throw Problem(JobsError.draining) }
    guard let type = MediaType(exchange.fields[.contentType]), exchange.isUnencoded else {
      throw Self.unknownType
    }
    let key = try exchange.idempotencyKey()
    switch type.essence {
    case "application/json": return try await submitJSON(exchange, key)
    case "multipart/form-data": return try await submitForm(exchange, type, key)
    default:
      guard type.isImage else { throw Self.unknownType }
      return try await submitCaptured(exchange, type, key)
    }
  }

  private static let unknownType = Problem(
    .unsupportedMediaType,
    "Send application/json, multipart/form-data, image/* or application/octet-stream, not compressed."
  )

  private func submitJSON(_ exchange: Exchange, _ key: String?) async throws(Problem) -> Response {
    try exchange.refuseQuery()
    // The longest legal job has some 120 values.
    let (bytes, body) = try await json(
      exchange, upTo: configuration.maxBody, maxValues: 160 * (configuration.maxBatch + 1))
    if case .array(let elements) = body, elements.count > configuration.maxBatch {
      throw Problem(.bodyTooLarge, "A batch holds at most \(configuration.maxBatch) jobs.")
    }
    var decoder = decoder(savesData: exchange.savesData)
    let jobs = decoder.jobs(from: body)
    try decoder.mistakes.check()
    let idempotencyKey = key.map { exchange.key($0, content: [bytes]) }
    let isBatch = if case .array = body { true } else { false }
    let snapshots = try await asking(isBatch: isBatch) { () throws(JobsError) in
      try await service.submit(jobs, by: exchange.caller.owner, key: idempotencyKey)
    }
    if isBatch { return accepted(batch: snapshots) }
    guard let snapshot = snapshots.first else { throw Problem(JobsError.unknownJob) }
    return accepted(snapshot)
  }

  private func submitCaptured(
    _ exchange: Exchange, _ type: MediaType, _ key: String?
  ) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    var decoder = decoder(savesData: exchange.savesData)
    let job = decoder.capturedJob(from: &query, contentType: type.essence)
    try query.finish(with: decoder.mistakes)

    var body = BoundedBody(exchange.request.body, limit: configuration.maxBody)
    try body.checkDeclaredLength()
    let capture = try await asking { () throws(JobsError) in try await service.beginCapture() }
    while let bytes = try await body.next() {
      try await asking { () throws(JobsError) in try await capture.write(bytes) }
    }
    return try await accept(
      Captured(capture: capture, contentType: type.essence), as: job, exchange, key, options: [])
  }

  /// Submits what was captured.
  func accept(
    _ captured: Captured, as job: NewJob, _ exchange: Exchange, _ key: String?, options: [UInt8]
  ) async throws(Problem) -> Response {
    let image = try await asking { () throws(JobsError) in try await captured.capture.finish() }
    var job = job
    job.submission.source = image.source(contentType: captured.contentType)
    let content = [Array(captured.contentType.utf8), image.digest.bytes, options]
    let snapshot = try await asking { [job] () throws(JobsError) in
      try await service.submit(
        captured: captured.capture, as: job, by: exchange.caller.owner,
        key: key.map { exchange.key($0, content: content) })
    }
    return accepted(snapshot)
  }

  func decoder(savesData: Bool) -> SubmissionDecoder {
    SubmissionDecoder(
      limits: configuration.limits, hasLocalRoot: configuration.hasLocalRoot, savesData: savesData)
  }

  /// The whole body and the JSON that it is.
  func json(_ exchange: Exchange, upTo limit: Int, maxValues: Int) async throws(Problem)
    -> (bytes: [UInt8], value: JSONValue)
  {
    let bytes: [UInt8]
    do { bytes = try await exchange.request.body.collect(upTo: limit) } catch {
      throw Problem(error)
    }
    do { return (bytes, try JSONParser.parse(bytes, maxValues: maxValues)) } catch {
      throw Problem(error)
    }
  }

  private func accepted(_ snapshot: JobSnapshot) -> Response {
    let fields: HTTPFields = [
      .contentType: "application/json", .location: "/jobs/\(snapshot.job.id)",
    ]
    return Response(status: .accepted, fields: fields, content: .bytes(snapshot.document))
  }

  private func accepted(batch: [JobSnapshot]) -> Response {
    let content = Response.Content.bytes(JobDocument.encode(batch: batch))
    return Response(
      status: .accepted, fields: [.contentType: "application/json"], content: content)
  }
}

/// An image that was received, and what its sender says it is.
struct Captured {
  let capture: any ImageCapture
  let contentType: String
}

/// A request's content, counted while it arrives.
struct BoundedBody {
  private let body: RequestBody
  private let limit: Int
  private var count = 0

  init(_ body: RequestBody, limit: Int) {
    self.body = body
    self.limit = limit
  }

  /// Throws before anything is read where the client says itself that it is too much.
  func checkDeclaredLength() throws(Problem) {
    if let length = body.declaredLength, length > limit { throw Problem(.tooLarge(limit: limit)) }
  }

  mutating func next() async throws(Problem) -> [UInt8]? {
    let bytes: [UInt8]?
    do { bytes = try await body.next() } catch { throw Problem(error) }
    count += bytes?.count ?? 0
    guard count <= limit else { throw Problem(.tooLarge(limit: limit)) }
    return bytes
  }
}

extension Exchange {
  /// Whether the content is as its media type says: no coding was applied (RFC 9110 section 8.4).
  var isUnencoded: Bool {
    guard let coding = fields[.contentEncoding] else { return true }
    return coding.lowercased() == "identity"
  }

  /// Whether the client asks for little data.
  var savesData: Bool { fields[.saveData]?.lowercased() == "on" }

  /// The client's key: 1 to 255 visible ASCII characters.
  func idempotencyKey() throws(Problem) -> String? {
    guard let key = fields[.idempotencyKey] else { return nil }
    guard 1...255 ~= key.utf8.count, key.utf8.allSatisfy({ 0x21...0x7E ~= $0 }) else {
      var mistakes = Mistakes()
      mistakes.add(
        .header("Idempotency-Key"), .invalidOption, "A key has 1 to 255 visible ASCII characters.")
      try mistakes.check()
      return nil
    }
    return key
  }

  /// The key with what tells this request from another: everything that the answer depends on.
  func key(_ key: String, content: [[UInt8]]) -> IdempotencyKey {
    var hash = SHA256()
    let type = fields[.contentType].flatMap(MediaType.init)?.essence ?? ""
    let head = [
      request.method.rawValue, request.path, request.query ?? "", type, fields[.saveData] ?? "",
    ]
    for part in head.map({ Array($0.utf8) }) + content {
      // Lengths between the parts, so that moving a byte from one to the next makes another request.
      withUnsafeBytes(of: part.count.littleEndian) { hash.update(bufferPointer: $0) }
      hash.update(data: part)
    }
    return IdempotencyKey(
      owner: caller.owner, key: key, fingerprint: ImageDigest(hash.finalize()))
  }
}
