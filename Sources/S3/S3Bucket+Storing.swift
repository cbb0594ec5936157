internal import Digests
internal import Executors
internal import Fetch
internal import Foundation
package import Jobs

/// Objects of any size. Large ones are sent in parts, and a part that fails is sent again alone.
extension S3Bucket {
  /// The maximum size in bytes of an object that is sent in one request.
  package static let largestWhole = 64 << 20
  private static let part = 16 << 20

  /// Stores an object and replaces an existing one.
  /// - Returns: its entity tag, if the store sent one.
  package func store(
    _ key: String, _ content: StoredBytes, digest: ImageDigest, type: String? = nil
  ) async throws(S3Error) -> String? {
    guard content.count > Self.largestWhole else {
      return try await put(key, Self.outgoing(content), digest: digest, type: type)
    }
    let upload = try await begin(key, type: type)
    do throws(S3Error) {
      var (parts, whole): ([Part], SHA256) = ([], SHA256())
      for start in stride(from: 0, to: content.count, by: Self.part) {
        let part = content.part(start..<min(content.count, start + Self.part))
        parts.append(try await send(part, number: parts.count + 1, of: upload, &whole))
      }
      guard ImageDigest(bytes: whole.finalize()) == digest else {
        throw .unexpected("the content changed while it was sent")
      }
      return try await complete(upload, parts)
    } catch {
      // Abort the upload, even if the job was cancelled: stored parts cost money.
      await Task.detached { [self] in
        var request = Request(.delete, key: key)
        request.query = [("uploadId", upload.id)]
        _ = try? await sendIfFound(request)
      }.value
      throw error
    }
  }

  private struct Upload {
    let key: String
    let id: String
  }

  private struct Part {
    let number: Int
    let entityTag: String
    let digest: ImageDigest
  }

  private static func outgoing(_ content: StoredBytes) -> OutgoingContent {
    OutgoingContent(count: content.count) { content.read(at: $0, count: $1) }
  }

  private func begin(_ key: String, type: String?) async throws(S3Error) -> Upload {
    var request = Request(.post, key: key)
    request.query = [("uploads", "")]
    request.fields = [HeaderField(name: "x-amz-checksum-algorithm", value: "SHA256")]
    if let type { request.fields.append(HeaderField(name: "Content-Type", value: type)) }
    let answer = S3XML(try await Self.content(of: send(request), atMost: 65_536))
    guard let id = answer.first("UploadId"), 1...1_024 ~= id.utf8.count else {
      throw .unexpected("the multipart upload has no id")
    }
    return Upload(key: key, id: id)
  }

  private func send(
    _ content: StoredBytes, number: Int, of upload: Upload, _ whole: inout SHA256
  ) async throws(S3Error) -> Part {
    let before = whole
    guard let (digest, after) = await disk.run({ Self.digest(of: content, after: before) }) else {
      throw .unexpected("the content to store can't be read")
    }
    whole = after
    var request = Request(.put, key: upload.key)
    request.query = [("partNumber", "\(number)"), ("uploadId", upload.id)]
    request.content = Self.outgoing(content)
    request.digest = digest.hex
    request.fields = [HeaderField(name: Self.checksum, value: digest.base64)]
    guard let tag = try Self.entityTag(of: try await send(request), with: digest) else {
      throw .unexpected("a part has no entity tag")
    }
    return Part(number: number, entityTag: tag, digest: digest)
  }

  /// Returns the digest of this part, and the hash state of all parts up to this one.
  private static func digest(
    of content: StoredBytes, after before: SHA256
  ) -> (ImageDigest, whole: SHA256)? {
    var (hash, whole) = (SHA256(), before)
    for start in stride(from: 0, to: content.count, by: 1 << 20) {
      let count = min(1 << 20, content.count - start)
      let piece = content.read(at: start, count: count)
      guard piece.count == count else { return nil }
      hash.update(data: piece)
      whole.update(data: piece)
    }
    return ImageDigest(bytes: hash.finalize()).map { ($0, whole) }
  }

  private func complete(_ upload: Upload, _ parts: [Part]) async throws(S3Error) -> String? {
    let list = parts.map { part in
      "<Part><PartNumber>\(part.number)</PartNumber><ETag>\(part.entityTag.escapedInXML)</ETag>"
        + "<ChecksumSHA256>\(part.digest.base64)</ChecksumSHA256></Part>"
    }.joined()
    let body = Array(
      "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\(list)</CompleteMultipartUpload>"
        .utf8)
    var request = Request(.post, key: upload.key)
    request.query = [("uploadId", upload.id)]
    request.content = OutgoingContent(body)
    request.digest = ImageDigest(bytes: SHA256.hash(data: body))?.hex ?? ""
    request.fields = [HeaderField(name: "Content-Type", value: "application/xml")]
    return try await send(request) { (response) throws(S3Error) in
      let answer = S3XML(try await Self.content(of: response, atMost: 65_536))
      // The store may send 200 before it knows the outcome, so an error in the content counts like
      // an error status.
      if let code = answer.first("Code") {
        throw .refused(status: 200, code: code.prefix(bytes: 64), message: "")
      }
      return answer.first("ETag")?.prefix(bytes: 256)
    }
  }
}

extension String {
  fileprivate var escapedInXML: String {
    replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
  }
}
