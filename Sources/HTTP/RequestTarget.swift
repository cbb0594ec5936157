import HTTPTypes

/// The target of a request line in one of its four forms (RFC 9112, section 3.2).
struct RequestTarget {
  /// The path as sent.
  let path: String
  /// The query as sent.
  let query: String?
  /// The authority of an absolute-form target. It overrides the Host field.
  let authority: String?

  /// Parses a target.
  /// - Returns: Nil if the target has a byte or a form that the method does not allow.
  init?(_ bytes: UnsafeBufferPointer<UInt8>, method: HTTPRequest.Method) {
    guard let first = bytes.first, bytes.allSatisfy({ $0.isTargetCharacter }) else { return nil }
    if first == UInt8(ascii: "/") {
      self.init(Slice(base: bytes, bounds: bytes.indices), authority: nil)
    } else if method == .connect {
      guard bytes.allSatisfy({ $0.isHostCharacter }) else { return nil }
      self.init(path: String(decoding: bytes, as: UTF8.self))
    } else if bytes.count == 1 && first == UInt8(ascii: "*") && method == .options {
      self.init(path: "*")
    } else {
      self.init(absolute: bytes)
    }
  }

  private init(path: String) {
    (self.path, query, authority) = (path, nil, nil)
  }

  private init?(absolute bytes: UnsafeBufferPointer<UInt8>) {
    let start = ["http://", "https://"].lazy.compactMap { scheme -> Int? in
      let prefix = String(decoding: bytes.prefix(scheme.utf8.count), as: UTF8.self)
      return prefix.lowercased() == scheme ? scheme.utf8.count : nil
    }.first
    guard let start else { return nil }
    let marks = [UInt8(ascii: "/"), UInt8(ascii: "?")]
    let end = bytes[start...].firstIndex(where: marks.contains) ?? bytes.endIndex
    let host = bytes[start..<end]
    guard !host.isEmpty, host.allSatisfy({ $0.isHostCharacter }) else { return nil }
    self.init(bytes[end...], authority: String(decoding: host, as: UTF8.self))
  }

  private init(_ rest: Slice<UnsafeBufferPointer<UInt8>>, authority: String?) {
    let mark = rest.firstIndex(of: UInt8(ascii: "?"))
    let path = rest[..<(mark ?? rest.endIndex)]
    self.path =
      path.isEmpty ? "/" : String(decoding: UnsafeBufferPointer(rebasing: path), as: UTF8.self)
    query = mark.map {
      String(decoding: UnsafeBufferPointer(rebasing: rest[($0 + 1)...]), as: UTF8.self)
    }
    self.authority = authority
  }
}
