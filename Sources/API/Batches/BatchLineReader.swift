internal import Jobs

/// Converts the lines of an upload to jobs or rejections.
struct BatchLineReader {
  /// The complete parts read since the last ``dequeueLines()``. They come before ``lines``.
  private var parts: [NewLines] = []
  private var lines: NewLines
  /// The number of lines received in earlier uploads.
  private var start: Int
  /// Whether the batch has more lines than allowed. The additional lines are ignored.
  private(set) var exceedsLineLimit = false
  private var decoder: SubmissionDecoder
  /// The defaults of each job. A line's own members replace them.
  private var template: NewJob { didSet { defaults = nil } }
  /// The template in the form that stores keep, created with the first job. The inner nil means that it is too short
  /// for that.
  private var defaults: SharedDefaults??
  /// The tags of the batch, added to those of each job.
  private let tags: [String]
  private let mostLines: Int
  /// ``Batch/content`` after the lines read so far; nil: the content is not tracked.
  private var content: BatchContent?
  /// The members next to `jobs` in the content.
  private var context = BatchContent.Context()
  /// The bytes of the next line that is counted.
  private var item: [UInt8]?
  private var comparison: BatchContentComparison?

  /// - Parameters:
  ///   - template: the defaults; its source is ignored.
  ///   - offset: the number of lines received in earlier uploads.
  ///   - mostLines: the maximum number of lines in the batch.
  ///   - content: the content received in earlier uploads.
  init(
    _ decoder: SubmissionDecoder, template: NewJob, tags: [String], after offset: Int,
    mostLines: Int, content: BatchContent? = nil
  ) {
    // An earlier upload may have had members but no lines. This upload then repeats the members.
    self.content = content.map { $0.items == 0 ? BatchContent() : $0 }
    (self.decoder, self.template, self.tags) = (decoder, template, tags)
    self.decoder.mistakes = Self.noMistakes
    (self.mostLines, start) = (mostLines, offset)
    lines = NewLines(after: offset)
  }

  /// The number of lines received in all uploads.
  private var received: Int { lines.offset + lines.count }

  /// Returns the lines read since the last call, in parts of about the size of one transaction.
  mutating func dequeueLines() -> [NewLines] {
    defer { (parts, lines) = ([], NewLines(after: received)) }
    lines.content = content
    return parts + [lines]
  }

  /// Switches to comparison: lines are compared with `content`, and none becomes a job.
  mutating func compare(with content: BatchContent) {
    (self.content, comparison) = (BatchContent(), BatchContentComparison(with: content))
    (start, lines) = (0, NewLines(after: 0))
  }

  /// Whether the content read so far equals the batch's; nil: more has to be read.
  var verdict: Bool? { exceedsLineLimit ? comparison?.finalVerdict : comparison?.verdict }
  /// The same at the end of the content.
  var finalVerdict: Bool? { comparison?.finalVerdict }

  /// Sets the bytes of the next line. Every format calls it before it adds, rejects or skips the line.
  mutating func begin(item bytes: some Sequence<UInt8>) {
    if content != nil { item = Array(bytes) }
  }

  /// Adds a member of the content that applies to later lines or to the whole batch.
  mutating func addContext(_ name: String, _ value: [UInt8]) {
    guard let before = content else { return }
    context.add(name, value)
    // An upload that continues a batch repeats the members of the first one.
    guard before.items == 0 || received > start else { return }
    content?.addMember(in: context)
    compare()
  }

  private mutating func compare() {
    guard let content else { return }
    comparison?.compare(content)
  }

  /// Marks the content as complete: no other upload continues it.
  mutating func completeContent() { content?.complete() }

  /// Sets the defaults of the lines from here on.
  mutating func setDefaults(_ members: [JSONValue.Member], at root: Location.Root) throws(Problem) {
    guard comparison == nil else { return }
    decoder.mistakes = RequestErrors()
    defer { decoder.mistakes = Self.noMistakes }
    template = decoder.template(from: members, at: root, over: template)
    try decoder.mistakes.check()
  }

  /// Sets the webhook of the batch. If it has events of jobs, it also applies to the jobs of the lines from here on
  /// that have no `notify` of their own.
  mutating func setWebhook(_ webhook: Webhook) {
    lines.webhook = webhook
    applyToJobs(webhook)
  }

  /// Sets the webhook of jobs without `notify`, if the batch's webhook has events of jobs.
  mutating func applyToJobs(_ webhook: Webhook) {
    let ends = WebhookEvent.jobEnds.intersection(webhook.events)
    guard template.submission.webhook == nil, !ends.isEmpty else { return }
    template.submission.webhook = Webhook(url: webhook.url, events: ends)
  }

  /// Applies `defaults` and `notify` of a JSON body: all that come before `jobs`, or one that comes after.
  mutating func apply(members: [JSONValue.Member], at root: Location.Root) throws(Problem) {
    guard comparison == nil else { return }
    for member in members where member.name == "defaults" {
      guard case .object(let defaults) = member.value else {
        throw Problem(.invalidOption, "defaults must be an object.")
      }
      try setDefaults(defaults, at: root)
    }
    for member in members where member.name == "notify" {
      decoder.mistakes = RequestErrors()
      defer { decoder.mistakes = Self.noMistakes }
      let webhook = decoder.batchWebhook(
        member.value, at: Location(root: root, member: member.name))
      try decoder.mistakes.check()
      guard let webhook else { continue }
      guard received == start || WebhookEvent.jobEnds.isDisjoint(with: webhook.events) else {
        throw Problem(
          .invalidOption,
          "Move notify before jobs if it has events of jobs: jobs are created as they arrive.")
      }
      setWebhook(webhook)
    }
  }

  /// Counts a line. Returns false if the batch has too many.
  private mutating func count() -> Bool {
    exceedsLineLimit = exceedsLineLimit || received >= mostLines
    guard !exceedsLineLimit else { return false }
    if lines.bytes >= BatchWriter.most.bytes {
      lines.content = content
      parts.append(lines)
      lines = NewLines(after: received)
    }
    lines.count += 1
    if let item {
      content?.add(item, in: context)
      compare()
    }
    item = nil
    return true
  }

  /// Counts lines without content: empty ones, comments, or further lines of a record.
  mutating func skip(_ count: Int = 1) { for _ in 0..<count { _ = self.count() } }

  /// Rejects a line that is too long.
  mutating func rejectLong() {
    reject(url: nil, .bodyTooLarge, "The line is longer than \(LineSplitter.longest) bytes.")
  }

  /// Adds a line with a URL.
  mutating func add(url text: String) {
    guard comparison == nil else { return skip() }
    let url = decoder.url(.string(text), at: Location(root: .body(index: nil), member: "url"))
    guard let url else { return rejectMistakes(url: text) }
    var job = template
    job.submission.source = .url(url, lowData: nil)
    add(job)
  }

  /// Adds a line with JSON.
  mutating func add(json line: ArraySlice<UInt8>) {
    guard comparison == nil else { return skip() }
    let value: JSONValue
    do { value = try JSONParser.parse(Array(line), maxValues: Self.maxValues) } catch {
      return reject(url: nil, .malformedJSON, Problem(error).detail)
    }
    add(value)
  }

  /// The longest legal job has about 120 values.
  static let maxValues = 320

  /// Adds a line with a job or a URL.
  mutating func add(_ value: JSONValue) {
    guard comparison == nil else { return skip() }
    switch value {
    case .string(let text): add(url: text)
    case .object(let members):
      let job = decoder.job(from: members, over: template)
      guard let job, decoder.mistakes.isEmpty else {
        return rejectMistakes(url: members.first { $0.name == "url" }?.value.string)
      }
      add(job)
    default: reject(url: nil, .invalidOption, "A line must be a job or a URL, not \(value.kind).")
    }
  }

  private mutating func add(_ job: NewJob) {
    guard count() else { return }
    let job = tagged(job, with: sharedDefaults())
    lines.bytes += job.keptBytes
    lines.jobs.append(NewLines.Job(line: received, job: job))
  }

  private func tagged(_ job: NewJob, with defaults: SharedDefaults?) -> NewJob {
    var job = job
    job.tags += tags.filter { !job.tags.contains(tag: $0) }
    job.submission.defaults = defaults
    return job
  }

  private mutating func sharedDefaults() -> SharedDefaults? {
    if let defaults { return defaults }
    let made = SharedDefaults(of: tagged(template, with: nil))
    defaults = .some(made)
    return made
  }

  /// Rejected lines report only their first mistake.
  private static let noMistakes = RequestErrors(most: 1)

  private mutating func rejectMistakes(url: String?) {
    let mistake = decoder.mistakes.errors.first
    decoder.mistakes = Self.noMistakes
    var detail = mistake?.detail ?? "The line is not a job."
    if case .pointer(let pointer)? = mistake?.place, pointer != "/url" {
      detail = "\(pointer): \(detail)"
    }
    reject(url: url, mistake?.code ?? .invalidOption, detail)
  }

  mutating func reject(url: String?, _ code: RequestCode, _ detail: String) {
    guard count(), comparison == nil else { return }
    // Cut to the length of the longest valid URL.
    let told = url.map { $0.prefix(bytes: SourceURL.maxLength) }
    let line = RejectedLine(line: received, url: told, code: code.rawValue, detail: detail)
    lines.bytes += line.keptBytes
    lines.rejected.append(line)
  }
}

/// Splits a text into lines while it arrives. A line ends with LF, CRLF or the end of the text.
struct LineSplitter {
  /// The maximum bytes of a line. Longer lines are not kept.
  static let longest = 1 << 20

  private var rest: [UInt8] = []
  private var isTooLong = false

  /// - Parameter take: called with each complete line; with nil if the line is too long.
  mutating func split(_ piece: [UInt8], _ take: (ArraySlice<UInt8>?) -> Void) {
    var start = piece.startIndex
    while let end = piece[start...].firstIndex(of: 0x0A) {
      if rest.isEmpty, !isTooLong {
        take(Self.trimmed(piece[start..<end]))
      } else {
        append(piece[start..<end])
        emitLine(take)
      }
      start = end + 1
    }
    append(piece[start...])
  }

  /// Reads the rest at the end of the text.
  mutating func finish(_ take: (ArraySlice<UInt8>?) -> Void) {
    if !rest.isEmpty || isTooLong { emitLine(take) }
  }

  private mutating func append(_ bytes: ArraySlice<UInt8>) {
    guard !isTooLong, rest.count + bytes.count <= Self.longest else {
      (rest, isTooLong) = ([], true)
      return
    }
    rest += bytes
  }

  private mutating func emitLine(_ take: (ArraySlice<UInt8>?) -> Void) {
    take(isTooLong ? nil : Self.trimmed(rest[...]))
    (rest, isTooLong) = ([], false)
  }

  private static func trimmed(_ line: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    line.last == 0x0D ? line.dropLast() : line
  }
}

/// Splits the content of an upload into lines.
protocol BatchFormat: Sendable {
  /// Reads a piece of the content.
  /// - Throws: a mistake that ends the upload. Lines that were read before it are kept.
  mutating func read(_ piece: [UInt8], into reader: inout BatchLineReader) throws(Problem)

  /// Reads the rest at the end of the content.
  mutating func finish(into reader: inout BatchLineReader) throws(Problem)
}

/// `text/uri-list` (RFC 2483 section 5) and `text/plain`: one URL per line.
struct URIListFormat: BatchFormat {
  private var splitter = LineSplitter()

  mutating func read(_ piece: [UInt8], into reader: inout BatchLineReader) {
    splitter.split(piece) { Self.read($0, &reader) }
  }

  mutating func finish(into reader: inout BatchLineReader) {
    splitter.finish { Self.read($0, &reader) }
  }

  private static func read(_ line: ArraySlice<UInt8>?, _ reader: inout BatchLineReader) {
    reader.begin(item: line ?? [0xFF])
    guard let line else { return reader.rejectLong() }
    let text = line.trimmingSpace
    guard let first = text.first, first != UInt8(ascii: "#") else { return reader.skip() }
    guard let url = String(validating: text, as: UTF8.self) else {
      return reader.reject(url: nil, .invalidURL, "The line is not UTF-8.")
    }
    reader.add(url: url)
  }
}

/// `application/x-ndjson`: each line is a job, or a string with a URL.
struct NDJSONFormat: BatchFormat {
  private var splitter = LineSplitter()

  mutating func read(_ piece: [UInt8], into reader: inout BatchLineReader) {
    splitter.split(piece) { Self.read($0, &reader) }
  }

  mutating func finish(into reader: inout BatchLineReader) {
    splitter.finish { Self.read($0, &reader) }
  }

  private static func read(_ line: ArraySlice<UInt8>?, _ reader: inout BatchLineReader) {
    reader.begin(item: line ?? [0xFF])
    guard let line else { return reader.rejectLong() }
    let text = line.trimmingSpace
    if text.isEmpty { reader.skip() } else { reader.add(json: text) }
  }
}

extension ArraySlice<UInt8> {
  /// Returns the slice without spaces and tabs at both ends.
  var trimmingSpace: ArraySlice<UInt8> {
    func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
    var rest = drop(while: isSpace)
    while let last = rest.last, isSpace(last) { rest.removeLast() }
    return rest
  }
}
