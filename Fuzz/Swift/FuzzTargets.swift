// Whether any bytes have a reader of text or of messages trap, hang, or give what can't be. One program, FUZZ_TARGET says
// which; Fuzz/run builds and runs it. A trap, a failed precondition and an overflow end it, as does what `expect` holds.
import Glibc

typealias Target = @Sendable ([UInt8]) -> Void

/// Looked up once.
private let chosen: Target = {
  let name = getenv("FUZZ_TARGET").map { String(cString: $0) } ?? ""
  guard let target = targets[name] else { fatalError("FUZZ_TARGET: no target \(name)") }
  return target
}()

private let targets: [String: Target] = [
  "url": fuzzURL, "host": fuzzHost, "address": fuzzAddress, "range": fuzzRange, "cache": fuzzCache,
  "date": fuzzDate, "multipart": fuzzMultipart, "json": fuzzJSON, "yaml": fuzzYAML,
  "csv": fuzzLines,
  "signature": fuzzSignature, "reply": fuzzReply, "request": fuzzRequest, "exif": fuzzEXIF,
]

@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOne(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
  chosen(Array(UnsafeBufferPointer(start: start, count: count)))
  return 0
}

func expect(_ isSo: Bool, _ what: @autoclosure () -> String) {
  if !isSo { fatalError("not held: \(what())") }
}

/// What no byte sequence fails to be.
func text(_ bytes: some Sequence<UInt8>) -> String {
  String(decoding: Array(bytes), as: UTF8.self)
}

/// Where a first byte says so, cut in two there; or every byte by itself.
func pieces(of bytes: [UInt8], by number: UInt8) -> [[UInt8]] {
  if number == 0 { return bytes.map { [$0] } }
  let cut = bytes.count * Int(number) / 256
  return [Array(bytes.prefix(cut)), Array(bytes.dropFirst(cut))]
}
