internal import CCurl
internal import Glibc

/// Requests about a batch. After a failure they continue with what the batch has received.
extension Download {
  /// Creates a batch that accepts lines until it is closed.
  func beginBatch(named name: String) throws(EndOfRun) -> BatchResponse {
    var path = "/batches?open=true&name=\(Self.percentEncoded(name))"
    if let defaults = options.defaults { path += "&defaults=\(Self.percentEncoded(defaults))" }
    // The key makes the service return the same batch if an earlier attempt had arrived.
    let key = String(UInt64.random(in: .min ... .max), radix: 36)
    let body = options.headersOnlyBatch
    let request = ServiceConnection.Request(
      method: "POST", path: path,
      fields: ["Idempotency-Key: get-\(key)"] + (body == nil ? ["Content-Length: 0"] : []),
      body: body,
      // An aborted request would leave a batch whose id is unknown, so it could not be cancelled.
      isStoppable: false)
    let answer = try sendUntilAnswered(request)
    if answer.status == 422, let problem = ProblemResponse(answer.body) {
      throw .usage(PlainText.line(problem.placedText))
    }
    return try batch(answer)
  }

  /// Sends lines until the batch has received all of them or accepts no more.
  /// - Parameters:
  ///   - lines: The lines without their line ends.
  ///   - before: The number of lines that the batch has already received.
  /// - Returns: The batch after that.
  func send(
    _ lines: [[UInt8]], to id: String, after before: Int
  ) throws(EndOfRun) -> BatchResponse {
    let whole = before + lines.count
    var received = before
    var backoff = Backoff()
    while true {
      var request = ServiceConnection.Request(
        method: "POST", path: "/batches/\(id)/lines?from=\(received)",
        body: Array(lines.dropFirst(received - before).joined(separator: [0x0A])) + [0x0A],
        seconds: 120)
      request.contentType = "application/x-ndjson"
      let answer: ServiceConnection.Response?
      do throws(ServiceConnection.Failure) {
        answer = try connection.send(request)
        backoff.answered()
      } catch {
        guard case .broken = error,
          let pause = backoff.failed(at: .now, jitter: .random(in: 0...1))
        else { throw endOfRun(for: error) }
        try sleep(for: pause)
        answer = nil
      }
      if let answer, let seconds = Self.pause(after: answer) { try sleep(for: .seconds(seconds)) }
      // After any other response, or none, the batch itself says how many lines it has received.
      let isTaken = answer?.status == 202
      let batch = try batch(
        isTaken ? answer ?? .init() : try sendUntilAnswered(.init(path: "/batches/\(id)")))
      received = min(max(received, batch.received), whole)
      if received == whole || batch.state != .receiving { return batch }
      switch answer?.status {
      case nil, 202, 409, 429, 502, 503, 504: break
      case 413: return batch
      default: if let answer { throw unexpectedResponse(answer) }
      }
    }
  }

  /// Closes the batch, so that it accepts no more lines.
  func close(batch id: String) throws(EndOfRun) {
    let answer = try sendUntilAnswered(.init(method: "POST", path: "/batches/\(id)/close"))
    if answer.status != 404 { _ = try batch(answer) }
  }

  /// Reads the results from a line on. A result arrives once all lines before it have ended.
  /// - Returns: False if the response was aborted before its end.
  func results(
    of id: String, from line: Int, onLine: @escaping (ResultLine) -> Void
  ) throws(EndOfRun) -> Bool {
    var request = ServiceConnection.Request(
      path: "/batches/\(id)/results?follow=true&from=\(line)", seconds: nil)
    request.onLine = { if let line = ResultLine($0) { onLine(line) } }
    let answer: ServiceConnection.Response
    do { answer = try connection.send(request) } catch {
      // After two silent minutes the request is repeated, because the connection may be dead.
      guard case .broken = error else { throw endOfRun(for: error) }
      return false
    }
    if let seconds = Self.pause(after: answer) {
      try sleep(for: .seconds(seconds))
      return false
    }
    guard answer.status == 200 else { throw unexpectedResponse(answer) }
    return true
  }

  /// Returns the batch, or nil if it was deleted.
  func fetchBatch(_ id: String) throws(EndOfRun) -> BatchResponse? {
    let answer = try sendUntilAnswered(.init(path: "/batches/\(id)"))
    return answer.status == 404 ? nil : try batch(answer)
  }

  /// Returns a page of jobs. Nil on any failure, because nothing depends on this request.
  func jobs(_ query: String) throws(EndOfRun) -> JobPageResponse? {
    guard let answer = try? connection.send(.init(path: "/jobs?limit=100&\(query)")) else {
      if stop.isRaised { throw .stopped }
      return nil
    }
    return answer.status == 200 ? JobPageResponse(answer.body) : nil
  }

  /// Cancels the jobs that have not ended.
  func cancel(batch id: String) {
    // A failure cannot be handled here, so it is ignored.
    _ = try? connection.send(
      .init(method: "DELETE", path: "/batches/\(id)", seconds: 5, isStoppable: false))
  }

  private func batch(_ answer: ServiceConnection.Response) throws(EndOfRun) -> BatchResponse {
    if answer.status == 404 { throw .mistake("the batch has been deleted at \(address.base)") }
    guard 200...202 ~= answer.status, let batch = BatchResponse(answer.body) else {
      throw unexpectedResponse(answer)
    }
    return batch
  }

  private static func percentEncoded(_ text: String) -> String {
    guard let encoded = curl_easy_escape(nil, text, Int32(text.utf8.count)) else { return "" }
    defer { curl_free(encoded) }
    return String(cString: encoded)
  }
}
