internal import Fetch
internal import Jobs

/// Requests previews from other instances of the cluster through their API.
struct Peers: InstancePeers {
  let sender: CurlFetcher
  private static let timeout = Duration.seconds(2)
  /// The maximum size of a preview. It has the image's dimensions, but is strongly compressed.
  private static let maxBytes = 32 << 20

  func preview(of id: JobID, at address: String, authorization: String?) async -> Preview? {
    guard let url = SourceURL("\(address)/jobs/\(id)/preview") else { return nil }
    var fields = [HeaderField(name: "Imagefetch-Peer", value: "1")]
    if let authorization {
      fields.append(HeaderField(name: "Authorization", value: authorization))
    }
    let request = OutgoingRequest(
      .get, url, fields: fields, timeout: Self.timeout, maxBytes: Self.maxBytes)
    do throws(FetchError) {
      let response = try await sender.send(request)
      // If the job has just finished, the response is the image itself, which is not a preview. The client's next
      // request gets the image.
      guard response.status == 200, let scan = response.field("Image-Preview"),
        scan.hasPrefix("scan="), let number = Int(scan.dropFirst("scan=".count)),
        let type = response.field("Content-Type"),
        let format = [ImageFormat.jpeg, .png].first(where: { $0.contentType == type })
      else { return nil }
      var bytes: [UInt8] = []
      while let piece = try await response.body.next() { bytes += piece }
      return Preview(bytes: bytes, format: format, scan: number)
    } catch { return nil }
  }
}

extension FetchedResponse {
  fileprivate func field(_ name: String) -> String? {
    headers.first { $0.name.lowercased() == name.lowercased() }?.value
  }
}
