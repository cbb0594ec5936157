import HTTPTypes

@testable import API
@testable import HTTP
@testable import Jobs
@testable import YAML

func fuzzRange(_ bytes: [UInt8]) {
  let text = text(bytes)
  for count in [0, 1, 1_000, .max] {
    if case .part(let range) = ByteRange(text, count: count) {
      expect(!range.isEmpty && range.lowerBound >= 0 && range.upperBound <= count, "\(range)")
    }
  }
  _ = (Accept(text), MediaType(text))
  var query = Query(text)
  _ = VariantQuery(&query, formats: Set(OutputFormat.allCases), longest: 30_000)
  bytes.withUnsafeBufferPointer { target in
    for method in [.get, .options, .connect] as [HTTPRequest.Method] {
      _ = RequestTarget(target, method: method)
    }
  }
}

/// The events of a multipart body, with the content of each part joined. Nil if it is no multipart body.
private func parts(_ bytes: [[UInt8]]) -> [MultipartParser.Event]? {
  guard let type = MediaType("multipart/form-data; boundary=b"),
    var parser = MultipartParser(type)
  else { return nil }
  var events: [MultipartParser.Event] = []
  do throws(MultipartError) {
    for piece in bytes {
      parser.append(piece)
      while let event = try parser.next() {
        if case .content(let more) = event, case .content(let before)? = events.last {
          events[events.count - 1] = .content(before + more)
        } else {
          events.append(event)
        }
      }
    }
  } catch { return nil }
  return events.filter { $0 != .content([]) }
}

func fuzzMultipart(_ bytes: [UInt8]) {
  guard let first = bytes.first else { return }
  let body = Array(bytes.dropFirst())
  expect(parts([body]) == parts(pieces(of: body, by: first)), "the same result in pieces")
}

func fuzzJSON(_ bytes: [UInt8]) {
  guard let value = try? JSONParser.parse(bytes, maxValues: 1_000) else { return }
  expect(String(validating: bytes, as: UTF8.self) != nil, "UTF-8")
  var decoder = lineDecoder()
  for job in decoder.jobs(from: value) { _ = job.submission }
}

func fuzzYAML(_ bytes: [UInt8]) {
  var limits = Document.Limits()
  (limits.bytes, limits.nodes) = (1 << 16, 1_000)
  let document = Document(reading: bytes, limits: limits)
  expect(document.root != nil || !document.mistakes.isEmpty || isBlank(bytes), "some mistake")
}

/// Whether the document may be empty.
private func isBlank(_ bytes: [UInt8]) -> Bool {
  bytes.allSatisfy { $0 <= 0x20 } || bytes.contains { "#-.%\u{FEFF}".utf8.contains($0) }
}

private func lineDecoder() -> SubmissionDecoder {
  SubmissionDecoder(
    limits: APIConfiguration.Limits(), hasLocalRoot: false, formats: Set(OutputFormat.allCases),
    allowsPlainWebhooks: false, destinations: ["shop"], savesData: false, maxPriority: nil)
}

/// The result of reading lines: how many lines, bytes and jobs there are, and whether the upload was aborted.
private func lines(_ format: some BatchFormat, _ bytes: [[UInt8]]) -> [Int] {
  var (format, decoder) = (format, lineDecoder())
  let template = decoder.template(from: [], at: .query)
  decoder.mistakes = RequestErrors()
  var reader = BatchLineReader(decoder, template: template, tags: [], after: 0, mostLines: 1_000)
  var hasFailed = false
  do throws(Problem) {
    for piece in bytes { try format.read(piece, into: &reader) }
    try format.finish(into: &reader)
  } catch { hasFailed = true }
  let read = reader.dequeueLines()
  let (count, jobs) = (read.reduce(0) { $0 + $1.count }, read.flatMap(\.jobs))
  expect(jobs.count <= count, "no more jobs than lines")
  expect(jobs.allSatisfy { (1...max(1, count)).contains($0.line) }, "existing line numbers")
  return [count, read.reduce(0) { $0 + $1.bytes }, jobs.count, hasFailed ? 1 : 0]
}

func fuzzLines(_ bytes: [UInt8]) {
  guard bytes.count > 2 else { return }
  let body = Array(bytes.dropFirst(2))
  let cut = pieces(of: body, by: bytes[1])
  func check(_ format: some BatchFormat) {
    expect(lines(format, [body]) == lines(format, cut), "the same result in pieces")
  }
  switch bytes[0] % 4 {
  case 0: check(CSVFormat())
  case 1: check(NDJSONFormat())
  case 2: check(URIListFormat())
  default: check(JSONBatchFormat(known: ["defaults"]) { _, _ in })
  }
}

func fuzzSignature(_ bytes: [UInt8]) {
  let signature = ViewSignature(keys: [[1, 2, 3]])
  let whole = text(bytes)
  let parts = whole.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
  let (path, query) = (String(parts.first ?? ""), parts.count > 1 ? String(parts[1]) : "")
  let moment = Timestamp(milliseconds: 1_800_000_000_000)
  // Without the key, no signature can be valid.
  expect((try? signature.check(path: path, query: query, at: moment)) == nil, "a forgery")
  let members = query.split(separator: "&", omittingEmptySubsequences: false)
  guard !members.contains(where: { $0.hasPrefix("signature=") || $0.hasPrefix("expires=") }),
    let signed = signature.signed(path: path, query: query, expires: 1_900_000_000)
  else { return }
  expect((try? signature.check(path: path, query: signed, at: moment)) != nil, "its signature")
  expect(
    (try? signature.check(path: path + "x", query: signed, at: moment)) == nil, "another's")
}
