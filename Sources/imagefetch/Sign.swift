internal import App
internal import ArgumentParser
internal import Foundation
internal import Settings

/// `imagefetch sign`
struct Sign: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Signs an image URL, so that a browser can use it without a token.",
    discussion: """
      URL is a URL of GET /image (https://img.example/image?url=…&width=200, or only its path and \
      query), or the URL of an image, from which one is made. The newest of view.keys signs it. The \
      signature covers path and query: a proxy before the service must not change them.
      """)

  @Argument(help: ArgumentHelp("A URL of GET /image, or of an image.", valueName: "url"))
  var url: String

  @Option(help: ArgumentHelp("The configuration file, which has view.keys.", valueName: "file"))
  var config: String?

  @Option(help: ArgumentHelp("How long the URL is valid: 90s, 12h, 30d.", valueName: "duration"))
  var expiresIn = "1d"

  @Option(
    help: ArgumentHelp("The service's URL, which the signed URL begins with.", valueName: "url"))
  var server: String?

  func validate() throws {
    _ = try validity()
    _ = try view()
  }

  func run() throws {
    let configuration = try loadConfiguration(from: config)
    let (seconds, unsigned) = (try validity().components.seconds, try view())
    let expires = Date.now + TimeInterval(seconds)
    do throws(ViewURL.Refusal) {
      print(try unsigned.signed(by: configuration, expires: expires))
    } catch {
      throw commandError(error)
    }
  }

  private func validity() throws -> Duration {
    guard let goodFor = Duration.configured(expiresIn), goodFor >= .seconds(1) else {
      throw ValidationError(
        "\"\(expiresIn)\" is not a duration of at least one second (90s, 12h, 30d).")
    }
    return goodFor
  }

  private func view() throws -> ViewURL {
    do throws(ViewURL.Refusal) { return try ViewURL(url, server: server) } catch {
      throw commandError(error)
    }
  }

  private func commandError(_ refusal: ViewURL.Refusal) -> any Error {
    switch refusal {
    case .notAURL:
      ValidationError("\"\(url)\" is neither a URL of GET /image nor an http or https URL.")
    case .unusableServer:
      ValidationError("--server must be an http or https URL, and needs the URL of an image.")
    case .unknownMember(let name):
      ValidationError("\"\(name)\" is not a parameter of GET /image. Remove it.")
    case .noKey:
      OperatorMistakes(lines: [
        "view.keys: there is no key; make one with openssl rand -hex 32 and set IMAGEFETCH_VIEW_KEYS"
      ])
    }
  }
}
