internal import CCurl

/// libcurl's callbacks during a request. They run on the thread that sends it.
extension ServiceConnection {
  func installCallbacks() {
    let context = Unmanaged.passUnretained(self).toOpaque()
    CCurl_setWriteFunction(easy, CURLOPT_WRITEFUNCTION, bodyCallback)
    CCurl_setPointer(easy, CURLOPT_WRITEDATA, context)
    CCurl_setWriteFunction(easy, CURLOPT_HEADERFUNCTION, headerLineCallback)
    CCurl_setPointer(easy, CURLOPT_HEADERDATA, context)
    // libcurl calls this function at least once a second, even without data.
    CCurl_setLong(easy, CURLOPT_NOPROGRESS, 0)
    CCurl_setProgressFunction(easy, progressCallback)
    CCurl_setPointer(easy, CURLOPT_XFERINFODATA, context)
  }

  fileprivate static func at(_ context: UnsafeMutableRawPointer?) -> ServiceConnection? {
    context.map { Unmanaged<ServiceConnection>.fromOpaque($0).takeUnretainedValue() }
  }

  fileprivate var isBrokenOff: Bool { exchange.isStoppable && stop.isRaised }

  /// Handles bytes of the response's body.
  /// - Returns: Whether to continue the transfer.
  fileprivate func receiveBody(_ bytes: UnsafeRawBufferPointer) -> Bool {
    if exchange.response.status == 200, let onLine = exchange.onLine {
      return receiveLines(bytes, onLine)
    }
    guard exchange.response.status == 200, let sink = exchange.sink else {
      guard exchange.response.body.count + bytes.count <= Self.maxBody else {
        return abort(.oversized)
      }
      exchange.response.body.append(contentsOf: bytes)
      return true
    }
    guard bytes.count <= sink.limit - exchange.response.saved else { return abort(.oversized) }
    exchange.response.saved += bytes.count
    do {
      try Descriptor.write(bytes, to: sink.descriptor)
      return true
    } catch {
      return abort(.unwritable(error.code))
    }
  }

  /// Splits the bytes into lines. An incomplete line is kept in the response's body.
  private func receiveLines(
    _ bytes: UnsafeRawBufferPointer, _ onLine: (ArraySlice<UInt8>) -> Void
  ) -> Bool {
    var rest = bytes[...]
    while let end = rest.firstIndex(of: 0x0A) {
      exchange.response.body.append(contentsOf: rest[..<end])
      guard exchange.response.body.count <= Self.maxBody else { return self.abort(.oversized) }
      onLine(exchange.response.body[...])
      exchange.response.body.removeAll(keepingCapacity: true)
      rest = rest[(end + 1)...]
    }
    guard exchange.response.body.count + rest.count <= Self.maxBody else {
      return abort(.oversized)
    }
    exchange.response.body.append(contentsOf: rest)
    return true
  }

  fileprivate func receive(headerLine line: UnsafeRawBufferPointer) -> Bool {
    exchange.fieldBytes += line.count
    guard exchange.fieldBytes <= Self.maxFieldBytes else { return abort(.oversized) }
    let text = String(decoding: line, as: UTF8.self)
    if text.hasPrefix("HTTP/") {
      // An interim response or a proxy's response may precede the final one.
      exchange.response = Response(
        status: Int(text.split(separator: " ").dropFirst().first ?? "") ?? 0)
    } else if let colon = text.firstIndex(of: ":") {
      let value = text[text.index(after: colon)...]
      exchange.response.fields[text[..<colon].lowercased()] = value.trimmingBlanks
    }
    return true
  }

  private func abort(_ failure: Failure) -> Bool {
    exchange.failure = failure
    return false
  }
}

private func bodyCallback(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let connection = ServiceConnection.at(context) else { return 0 }
  let isTaken = connection.receiveBody(UnsafeRawBufferPointer(start: bytes, count: size * count))
  return isTaken ? size * count : Int(UInt32.max)
}

private func headerLineCallback(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let connection = ServiceConnection.at(context) else { return 0 }
  let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
  return connection.receive(headerLine: line) ? size * count : Int(UInt32.max)
}

private func progressCallback(
  _ context: UnsafeMutableRawPointer?, _: curl_off_t, _: curl_off_t, _: curl_off_t, _: curl_off_t
) -> Int32 {
  ServiceConnection.at(context)?.isBrokenOff == true ? 1 : 0
}

extension Substring {
  /// The text without surrounding blanks and line ends.
  fileprivate var trimmingBlanks: String {
    var rest = unicodeScalars[...]
    let blanks: Set<Unicode.Scalar> = [" ", "\t", "\r", "\n"]
    while let first = rest.first, blanks.contains(first) { rest.removeFirst() }
    while let last = rest.last, blanks.contains(last) { rest.removeLast() }
    return String(rest)
  }
}
