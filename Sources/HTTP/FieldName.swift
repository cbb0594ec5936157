import HTTPTypes

/// Common field names. Looking one up allocates no memory.
struct FieldName: Sendable {
  /// How the field affects the framing of the message.
  enum Meaning: Sendable { case other, host, contentLength, transferEncoding, expect }

  let name: HTTPField.Name
  let meaning: Meaning
  private let lowercased: [UInt8]

  private init(_ name: HTTPField.Name, _ meaning: Meaning = .other) {
    self.name = name
    self.meaning = meaning
    lowercased = Array(name.canonicalName.utf8)
  }

  /// Returns the known name that equals these bytes, ignoring case.
  static func known(_ bytes: UnsafeBufferPointer<UInt8>) -> FieldName? {
    guard bytes.count < byLength.count else { return nil }
    for candidate in byLength[bytes.count] where candidate.matches(bytes) { return candidate }
    return nil
  }

  private func matches(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
    lowercased.withUnsafeBufferPointer { own in
      for index in 0..<own.count {
        let byte = bytes[index]
        let isUpper = byte &- 65 < 26
        if own[index] != (isUpper ? byte | 0x20 : byte) { return false }
      }
      return true
    }
  }

  static let host = HTTPField.Name("Host")!

  private static let byLength: [[FieldName]] = {
    let all =
      [
        FieldName(host, .host), FieldName(.contentLength, .contentLength),
        FieldName(.transferEncoding, .transferEncoding), FieldName(.expect, .expect),
      ]
      + [
        .accept, .acceptEncoding, .acceptLanguage, .authorization, .cacheControl, .connection,
        .contentType, .cookie, .ifMatch, .ifModifiedSince, .ifNoneMatch, .ifRange,
        .ifUnmodifiedSince, .origin, .range, .referer, .te, .userAgent, .via,
      ].map { FieldName($0) }
      + [
        "Dnt", "Forwarded", "Idempotency-Key", "Last-Event-Id", "Pragma", "Prefer", "Priority",
        "Save-Data",
        "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Traceparent",
        "Upgrade-Insecure-Requests",
        "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-Ip", "X-Request-Id",
      ].map { FieldName(HTTPField.Name($0)!) }
    var table: [[FieldName]] = []
    for known in all {
      while table.count <= known.lowercased.count { table.append([]) }
      table[known.lowercased.count].append(known)
    }
    return table
  }()
}
