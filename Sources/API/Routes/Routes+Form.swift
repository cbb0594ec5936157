internal import HTTP
internal import Jobs

/// `POST /jobs` as a form: the part `image` and an optional part `options`, in either order.
extension Routes {
  /// The maximum size of the part `options`, in bytes.
  private static var maxOptions: Int { 65_536 }

  func submitForm(
    _ exchange: AuthorizedRequest, _ type: MediaType, _ key: String?
  ) async throws(Problem) -> Response {
    let wait = try waitOnly(exchange)
    guard let parser = MultipartParser(type) else {
      throw Problem(.unsupportedMediaType, "The Content-Type has no valid boundary.")
    }
    var body = BoundedBody(exchange.request.body, limit: configuration.maxBody)
    try body.checkDeclaredLength()
    var form = Form(parser: parser)
    while let bytes = try await body.next() {
      form.parser.append(bytes)
      while let event = try form.next() { try await receive(event, of: exchange, into: &form) }
    }
    guard form.parser.isComplete else {
      throw Problem(.malformed(reason: "it ends before its closing boundary"))
    }
    return try await submit(form, exchange, key, wait)
  }

  private func receive(
    _ event: MultipartParser.Event, of exchange: AuthorizedRequest, into form: inout Form
  ) async throws(Problem) {
    switch event {
    case .part(let part):
      try form.beginPart(part)
      guard form.current == .image, let contentType = form.imageType else { return }
      form.image = ReceivedImage(
        capture: try await beginCapture(exchange), contentType: contentType)
    case .content(let bytes):
      switch form.current {
      case .image:
        guard let capture = form.image?.capture else { return }
        try await callEngine { () throws(JobsError) in try await capture.write(bytes) }
      case .options:
        guard form.options.count + bytes.count <= Self.maxOptions else {
          throw Problem(.bodyTooLarge, "The part options has more than \(Self.maxOptions) bytes.")
        }
        form.options += bytes
      case nil: return
      }
    case .endOfPart: form.current = nil
    }
  }

  private func submit(
    _ form: Form, _ exchange: AuthorizedRequest, _ key: String?, _ wait: Wait?
  ) async throws(Problem) -> Response {
    var decoder = decoder(for: exchange)
    guard let image = form.image else {
      decoder.mistakes.add(.parameter("image"), .missingURL, "The form has no part named image.")
      try decoder.mistakes.check()
      throw Problem(.missingURL, "The form has no part named image.")
    }
    let job = decoder.capturedJob(
      from: try members(of: form, &decoder), contentType: image.contentType,
      at: .body(index: nil))
    try decoder.mistakes.check()
    return try await accept(image, as: job, exchange, key, wait, options: form.options)
  }

  private func members(
    of form: Form, _ decoder: inout SubmissionDecoder
  ) throws(Problem) -> [JSONValue.Member] {
    guard form.entered.contains(.options) else { return [] }
    let options: JSONValue
    do {
      options = try JSONParser.parse(ByteOrderMark.removed(from: form.options), maxValues: 160)
    } catch {
      throw Problem(error)
    }
    if case .object(let members) = options { return members }
    decoder.mistakes.add(.pointer(""), .invalidOption, "Must be an object.")
    return []
  }
}

/// The parts received so far.
private struct Form {
  enum Part { case image, options }
  var parser: MultipartParser
  /// The part whose content is being received.
  var current: Part?
  var entered: Set<Part> = []
  var imageType: String?
  var image: ReceivedImage?
  var options: [UInt8] = []

  mutating func next() throws(Problem) -> MultipartParser.Event? {
    do { return try parser.next() } catch { throw Problem(error) }
  }

  mutating func beginPart(_ part: MultipartPart) throws(Problem) {
    let names: [String: Part] = ["image": .image, "options": .options]
    guard let entering = names[part.name] else { throw Self.refusal(ofPart: part.name) }
    current = entering
    guard entered.insert(entering).inserted else {
      throw Problem(.malformed(reason: "the part \(part.name) occurs twice"))
    }
    let type = MediaType(
      part.type ?? (entering == .image ? "application/octet-stream" : "application/json"))
    switch (entering, type) {
    case (.image, let type?) where type.isImage: imageType = type.essence
    case (.options, let type?) where ["application/json", "text/plain"].contains(type.essence):
      break
    default:
      throw Problem(
        .unsupportedMediaType, "The media type of the part \(part.name) is not supported.")
    }
  }

  /// The form is refused at its first unknown part, and the rest is not read.
  private static func refusal(ofPart name: String) -> Problem {
    let detail = "The part is unknown. A form has the parts image and options."
    var problem = Problem(.invalidOption, detail)
    let place = Location(root: .query, member: name).place
    problem.errors = [FieldError(place: place, code: .invalidOption, detail: detail)]
    return problem
  }
}
