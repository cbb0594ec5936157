internal import Digests
internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `POST /jobs` in all its forms, and the paths for one form each.
extension Routes {
  func submit(_ exchange: AuthorizedRequest, at route: Route) async throws(Problem) -> Response {
    guard service.state != .draining else { throw Problem(JobsError.draining) }
    guard let type = MediaType(exchange.fields[.contentType]), exchange.isUnencoded else {
      throw Self.unknownType(at: route)
    }
    let key = try exchange.idempotencyKey()
    switch (type.essence, route) {
    case ("application/json", .jobs), ("application/json", .batch):
      return try await submitJSON(exchange, key, onlyBatches: route == .batch)
    case ("multipart/form-data", .jobs), ("multipart/form-data", .form):
      return try await submitForm(exchange, type, key)
    case (_, .jobs) where type.isImage, (_, .upload) where type.isImage:
      return try await submitCaptured(exchange, type, key)
    default: throw Self.unknownType(at: route)
    }
  }

  private static func unknownType(at route: Route) -> Problem {
    let types =
      switch route {
      case .batch: "application/json"
      case .upload: "image/* or application/octet-stream"
      case .form: "multipart/form-data"
      default: "application/json, multipart/form-data, image/* or application/octet-stream"
      }
    return Problem(
      .unsupportedMediaType, "Content-Type must be \(types), without a Content-Encoding.")
  }

  private func submitJSON(
    _ exchange: AuthorizedRequest, _ key: String?, onlyBatches: Bool
  ) async throws(Problem) -> Response {
    let wait = try waitOnly(exchange)
    // The reservation is kept until the response is sent, because the jobs and their JSON still use the memory.
    let share = memory.allocation(for: exchange.client)
    let request = try await submitted(exchange, key, share, onlyBatches: onlyBatches)
    let submitted = try await callEngine(isBatch: request.isBatch) { () throws(JobsError) in
      try await service.submit(request.jobs, by: exchange.caller, key: request.key)
    }
    return await accepted(submitted, isBatch: request.isBatch, exchange, wait, share)
  }

  private struct Submitted {
    let jobs: [NewJob]
    let isBatch: Bool
    let key: IdempotencyKey?
  }

  /// Reads and parses the body. The memory of its bytes and JSON is freed on return.
  private func submitted(
    _ exchange: AuthorizedRequest, _ key: String?, _ share: Budget.Allocation, onlyBatches: Bool
  ) async throws(Problem) -> Submitted {
    let bytes = try await configuration.bodyLimits.read(exchange.request.body, in: share)
    let (maxBatch, decoder) = (configuration.maxBatch, decoder(for: exchange))
    var (jobs, isBatch) = try await bodyParser.parse(bytes.count, for: exchange.client) {
      () throws(Problem) in
      try Self.jobs(in: bytes, by: decoder, maxBatch: maxBatch, onlyBatches: onlyBatches)
    }
    if let trace = trace(of: exchange) {
      for at in jobs.indices { jobs[at].submission.trace = trace }
    }
    return Submitted(
      jobs: jobs, isBatch: isBatch, key: key.map { exchange.key($0, content: [bytes]) })
  }

  private static func jobs(
    in bytes: [UInt8], by decoder: SubmissionDecoder, maxBatch: Int, onlyBatches: Bool
  ) throws(Problem) -> (jobs: [NewJob], isBatch: Bool) {
    // The longest legal job has about 120 values.
    let body = try json(bytes, maxValues: 160 * (maxBatch + 1))
    if case .array(let elements) = body, elements.count > maxBatch {
      throw Problem(
        .bodyTooLarge, "An array has at most \(maxBatch) jobs. Send several, or use /batches.")
    }
    var decoder = decoder
    let isBatch = if case .array = body { true } else { false }
    if onlyBatches, !isBatch {
      decoder.mistakes.add(
        .pointer(""), .invalidOption, "Must be an array of jobs, not \(body.kind).")
      try decoder.mistakes.check()
    }
    let jobs = decoder.jobs(from: body)
    try decoder.mistakes.check()
    return (jobs, isBatch)
  }

  private func submitCaptured(
    _ exchange: AuthorizedRequest, _ type: MediaType, _ key: String?
  ) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    let wait = Wait(&query, exchange.fields, longest: configuration.maxWait)
    var decoder = decoder(for: exchange)
    let job = decoder.capturedJob(from: &query, contentType: type.essence)
    try query.checkComplete(with: decoder.mistakes)

    var body = BoundedBody(exchange.request.body, limit: configuration.maxBody)
    try body.checkDeclaredLength()
    let capture = try await beginCapture(exchange)
    while let bytes = try await body.next() {
      try await callEngine { () throws(JobsError) in try await capture.write(bytes) }
    }
    return try await accept(
      ReceivedImage(capture: capture, contentType: type.essence), as: job, exchange, key, wait,
      options: [])
  }

  /// The trace context of the request, if jobs store it.
  private func trace(of exchange: AuthorizedRequest) -> TraceContext? {
    guard configuration.storesTraceContext else { return nil }
    return exchange.fields[.traceparent].flatMap { TraceContext(traceparent: $0) }
  }

  /// Prepares to receive an image that the client uploads.
  func beginCapture(_ exchange: AuthorizedRequest) async throws(Problem) -> any ImageCapture {
    try await callEngine { () throws(JobsError) in
      try await service.beginCapture(by: exchange.caller.owner)
    }
  }

  /// Submits the job with the uploaded image.
  func accept(
    _ captured: ReceivedImage, as job: NewJob, _ exchange: AuthorizedRequest, _ key: String?,
    _ wait: Wait?,
    options: [UInt8]
  ) async throws(Problem) -> Response {
    let image = try await callEngine { () throws(JobsError) in try await captured.capture.finish() }
    var job = job
    job.submission.source = image.source(contentType: captured.contentType)
    job.submission.trace = trace(of: exchange)
    let content = [Array(captured.contentType.utf8), image.digest.bytes, options]
    let submitted = try await callEngine { [job] () throws(JobsError) in
      try await service.submit(
        captured: captured.capture, as: job, by: exchange.caller,
        key: key.map { exchange.key($0, content: content) })
    }
    return await accepted([submitted], isBatch: false, exchange, wait)
  }

  func decoder(for exchange: AuthorizedRequest) -> SubmissionDecoder {
    SubmissionDecoder(
      limits: configuration.limits, hasLocalRoot: configuration.hasLocalRoot,
      formats: service.outputFormats, allowsPlainWebhooks: configuration.allowsPlainWebhooks,
      destinations: destinations(for: exchange.caller.owner), savesData: exchange.savesData,
      maxPriority: exchange.caller.limits.maxPriority)
  }

  /// The destinations that an owner may use. All others are treated as unknown.
  func destinations(for owner: Owner) -> Set<String> {
    Set(configuration.destinations.filter { $0.value?.contains(owner) ?? true }.keys)
  }

  private static func json(_ bytes: [UInt8], maxValues: Int) throws(Problem) -> JSONValue {
    do { return try JSONParser.parse(bytes, maxValues: maxValues) } catch { throw Problem(error) }
  }

  /// Parses a short JSON body.
  func smallJSON(_ exchange: AuthorizedRequest) async throws(Problem) -> JSONValue {
    let gathering = BodyLimits(upTo: min(configuration.maxBody, BodyParser.threshold))
    let share = memory.allocation(for: exchange.client)
    let bytes = try await gathering.read(exchange.request.body, in: share)
    return try Self.json(bytes, maxValues: 64)
  }

  /// The 202 with the jobs: at once, or with `wait` when all have finished or the time is over.
  private func accepted(
    _ submitted: [SubmittedJob], isBatch: Bool, _ exchange: AuthorizedRequest, _ wait: Wait?,
    _ share: Budget.Allocation? = nil
  ) async -> Response {
    // The jobs are accepted already. If no connection may wait, the response is sent at once.
    let place = wait == nil ? nil : try? reserveConnection(for: exchange)
    defer { place?.release() }
    let limit = place == nil ? .zero : wait?.limit ?? .zero
    let jobs = await waited(submitted, for: exchange.caller, limit)
    var fields: HTTPFields = [.contentType: "application/json"]
    fields.acknowledge(wait)
    let documents = jobs.map { document(of: $0) }
    guard !isBatch, let job = jobs.first else {
      let batch = JobDocument.encode(batch: documents)
      // The jobs are accepted already, so the response is not refused when the memory limit is reached.
      share?.set(batch.count)
      return Response(
        status: .accepted, fields: fields, content: .bytes(batch), keeping: share)
    }
    fields[.location] = "/jobs/\(job.id)"
    return Response(status: .accepted, fields: fields, content: .bytes(documents[0]))
  }

  /// Waits until all jobs have finished or the time is over. The jobs are accepted already, so errors here do not fail
  /// the request. If a job's current state can't be read, its last known state is used.
  private func waited(
    _ submitted: [SubmittedJob], for caller: Caller, _ limit: Duration
  ) async -> [SubmittedJob] {
    guard limit > .zero else { return submitted }
    let deadline = ContinuousClock.now + limit
    var jobs = submitted
    for (place, job) in submitted.enumerated() where job.snapshot?.job.phase.isFinished == false {
      let left = deadline - .now
      do throws(JobsError) {
        if left > .zero, !Task.isCancelled {
          let snapshot = try await service.wait(
            job.id, for: caller, until: .finished, atMost: left)
          jobs[place] = SubmittedJob(snapshot)
        } else if let snapshot = service.peek(job.id, for: caller) {
          jobs[place] = SubmittedJob(snapshot)
        }
      } catch {
        if error == .unknownJob { jobs[place] = SubmittedJob(gone: job.id) }
      }
    }
    return jobs
  }
}

/// An uploaded image with the media type that its client sent.
struct ReceivedImage {
  let capture: any ImageCapture
  let contentType: String
}

/// A request's body with a limit that is checked while it arrives.
struct BoundedBody {
  private let body: RequestBody
  private let limit: Int
  private var count = 0

  init(_ body: RequestBody, limit: Int) {
    self.body = body
    self.limit = limit
  }

  /// Throws before anything is read if the declared length is above the limit.
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

extension AuthorizedRequest {
  /// Whether the body has no content coding (RFC 9110 section 8.4).
  var isUnencoded: Bool {
    guard let coding = fields[.contentEncoding] else { return true }
    return coding.lowercased() == "identity"
  }

  /// Whether the client sent `Save-Data: on`.
  var savesData: Bool { fields[.saveData]?.lowercased() == "on" }

  /// The value of `Idempotency-Key`: 1 to 255 visible ASCII characters.
  func idempotencyKey() throws(Problem) -> String? {
    guard let key = fields[.idempotencyKey] else { return nil }
    guard 1...255 ~= key.utf8.count, key.utf8.allSatisfy({ 0x21...0x7E ~= $0 }) else {
      var mistakes = RequestErrors()
      mistakes.add(
        .header("Idempotency-Key"), .invalidOption, "Must have 1 to 255 visible ASCII characters.")
      try mistakes.check()
      return nil
    }
    return key
  }

  /// The key with a fingerprint of everything in the request that the response depends on.
  func key(_ key: String, content: [[UInt8]]) -> IdempotencyKey {
    var hash = SHA256()
    let type = fields[.contentType].flatMap(MediaType.init)?.essence ?? ""
    // `wait` does not make a request different.
    let query = (request.query ?? "").split(separator: "&").filter { !$0.hasPrefix("wait=") }
      .joined(separator: "&")
    let head = [
      request.method.rawValue, request.path, query, type, fields[.saveData] ?? "",
    ]
    for part in head.map({ Array($0.utf8) }) + content {
      // The lengths separate the parts: moving a byte from one part to the next changes the fingerprint.
      withUnsafeBytes(of: part.count.littleEndian) { hash.update(data: $0) }
      hash.update(data: part)
    }
    let fingerprint = ImageDigest(bytes: hash.finalize())!  // a SHA-256 has 32 bytes
    return IdempotencyKey(owner: caller.owner, key: key, fingerprint: fingerprint)
  }
}
