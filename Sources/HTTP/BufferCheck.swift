internal import CMicroHTTPD
import Glibc

/// Compares the head that a libmicrohttpd before 1.0 reports with the bytes in the library's buffer.
///
/// Why: those releases have no strict mode. They end a line at a bare LF, cut a value at a NUL, add a folded line to the
/// field's *name* and allow several blanks in the request line. The public API shows none of this. A proxy in front of the
/// service may read such a head as another request (request smuggling), so it is refused.
///
/// How: they parse in place and write a NUL over each delimiter. A well-formed head is a chain: method, NUL, target, NUL,
/// version, NUL (CR), NUL (LF), and then for each field: name, NUL (colon), blanks, value, NUL (CR), NUL (LF). A part
/// that does not start where the part before it ended is not what the client sent.
///
/// One case stays hidden: NUL and LF at the end of a line leave the same bytes as CRLF.
///
/// Delete this file and its one call, in `headCame`, once 1.0 is the oldest release that is supported.
struct BufferCheck {
  private var next: UnsafePointer<CChar>
  private var isIntact = true

  /// Checks the head that waits on `connection`.
  /// - Throws: `.malformed` if its parts are not such a chain.
  static func check(
    _ connection: OpaquePointer, _ method: UnsafePointer<CChar>, _ target: SentTarget,
    _ version: UnsafePointer<CChar>
  ) throws(RefusalError) {
    guard method + strlen(method) + 1 == target.start,
      target.start + target.bytes.count + 1 == version, version[8] == 0, version[9] == 0
    else { throw RefusalError(malformed: "the request line is not method, target, version") }
    var check = BufferCheck(next: version + 10)
    withUnsafeMutablePointer(to: &check) { pointer in
      _ = MHD_get_connection_values_n(connection, .HEADER_KIND, checkField, pointer)
    }
    guard check.isIntact else {
      throw RefusalError(malformed: "a field line is folded, not ended by CRLF, or holds a NUL")
    }
    guard check.next + 2 == method + CMicroHTTPD_headerSize(connection) else {
      throw RefusalError(malformed: "the header section is not ended by CRLF CRLF")
    }
  }

  /// Whether the field starts at `next`. Moves `next` behind it.
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
