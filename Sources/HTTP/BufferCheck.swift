internal import CMicroHTTPD
import Glibc

/// Checks a request head against libmicrohttpd's buffer, because releases before 1.0 parse too leniently.
///
/// Why: these releases have no strict mode. They end a line at a bare LF, cut a value at a NUL, add a folded
/// line to the field's *name* and allow several blanks in the request line. The public API does not report
/// any of this. A proxy in front of the service may read such a head as a different request (request
/// smuggling), so the request is refused.
///
/// How: these releases parse in place and write a NUL over each delimiter. A well-formed head is a chain:
/// method, NUL, target, NUL, version, NUL (CR), NUL (LF), and then for each field: name, NUL (colon), blanks,
/// value, NUL (CR), NUL (LF). If a part does not start directly after the previous one, the client sent
/// something else.
///
/// One case cannot be detected: a line that ends with NUL and LF leaves the same bytes as one that ends with
/// CRLF.
///
/// Delete this file and its one call, in `headReceived`, once 1.0 is the oldest supported release.
struct BufferCheck {
  private var next: UnsafePointer<CChar>
  private var isIntact = true

  /// Checks the head of the current request on `connection`.
  /// - Throws: `.malformed` if its parts are not such a chain.
  static func check(
    _ connection: OpaquePointer, _ method: UnsafePointer<CChar>, _ target: SentTarget,
    _ version: UnsafePointer<CChar>
  ) throws(RefusalError) {
    guard method + strlen(method) + 1 == target.start,
      target.start + target.bytes.count + 1 == version, version[8] == 0, version[9] == 0
    else {
      throw RefusalError(malformed: "the request line must have a method, a target and a version")
    }
    var check = BufferCheck(next: version + 10)
    withUnsafeMutablePointer(to: &check) { pointer in
      _ = MHD_get_connection_values_n(connection, .HEADER_KIND, checkField, pointer)
    }
    guard check.isIntact else {
      throw RefusalError(
        malformed: "a field line is folded, does not end with CRLF, or contains a NUL")
    }
    guard check.next + 2 == method + CMicroHTTPD_headerSize(connection) else {
      throw RefusalError(malformed: "the header section must end with CRLF CRLF")
    }
  }

  /// Returns whether the field starts at `next`, and moves `next` behind it.
  fileprivate mutating func follows(
    _ key: UnsafePointer<CChar>, _ keyCount: Int, _ value: UnsafePointer<CChar>, _ valueCount: Int
  ) -> Bool {
    isIntact =
      key == next && value > key + keyCount && value[valueCount] == 0 && value[valueCount + 1] == 0
    guard isIntact else { return false }
    var blank = key + keyCount + 1
    while blank < value, blank.pointee == 0x20 || blank.pointee == 0x09 { blank += 1 }
    isIntact = blank == value
    next = value + valueCount + 2
    return isIntact
  }
}

private func checkField(
  context: UnsafeMutableRawPointer?, kind: MHD_ValueKind, key: UnsafePointer<CChar>?, keyCount: Int,
  value: UnsafePointer<CChar>?, valueCount: Int
) -> MHD_Result {
  guard let check = context?.assumingMemoryBound(to: BufferCheck.self), let key, let value else {
    return .NO
  }
  return check.pointee.follows(key, keyCount, value, valueCount) ? .YES : .NO
}
