internal import ArgumentParser
internal import Client
internal import Foundation

/// Where images go, and how that is told.
struct OutputOptions: ParsableArguments {
  @Option(
    name: [.short, .long],
    help: ArgumentHelp(
      "A file for one image, a folder, or - for standard output; the working directory by default.",
      discussion: """
        In a folder nothing is ever overwritten: where cat.jpg is taken it is cat-2.jpg. With a \
        slash at its end the folder is made. A file's ending (.jpg, .png, .webp, .avif) is the format.
        """,
      valueName: "file|dir"))
  var output: String?

  @Option(
    help: ArgumentHelp(
      "How files in the folder are called, such as {host}/{path}/{name}.{ext}.",
      discussion: """
        {host}, {path} and {name} are the URL's, {ext} is what the bytes are, {index} counts the URLs. \
        Folders are made; no URL leads out of the one at --output.
        """,
      valueName: "template"),
    transform: { text in
      do throws(NameTemplate.Mistake) { return try NameTemplate(text) } catch {
        throw ValidationError(error.text)
      }
    })
  var outputTemplate: NameTemplate?

  @Flag(
    help: ArgumentHelp(
      "Leave alone what has a file already, without asking for it.",
      discussion: """
        A file's name comes from its URL then. Where two URLs of a run would have the same, the second \
        fails (name_taken): --output-template tells them apart.
        """))
  var skipExisting = false

  @Flag(help: "Lines as JSON: url, state, path, bytes, width, height, format, error.")
  var json = false

  @Flag(name: [.short, .long], help: "No bars, and lines for what failed only.")
  var quiet = false

  func validate() throws {
    guard output == "-" else { return }
    if isatty(STDOUT_FILENO) == 1 {
      throw ValidationError("Standard output is a terminal: send the image to a file or a program.")
    }
    if skipExisting { throw ValidationError("--skip-existing is for files.") }
  }

  /// - Parameter isMany: whether there may be more images than one.
  func chosen(isMany: Bool) throws -> Output {
    let chosen: Output
    do throws(Output.Mistake) { chosen = try Output(output, isMany: isMany) } catch {
      switch error {
      case .oneOnly(let path):
        throw UsageMistake(line: "--output: \"\(path)\" has room for one image, not for a list")
      case .unusable(let text): throw OperatorMistakes(lines: [text])
      }
    }
    guard case .folder = chosen else {
      if outputTemplate == nil { return chosen }
      throw UsageMistake(
        line: "--output-template names files in a folder, and \"\(output ?? "")\" is none")
    }
    return chosen
  }

  func add(to settings: inout Run.Settings) {
    (settings.template, settings.skipsExisting) = (outputTemplate, skipExisting)
    (settings.isQuiet, settings.isJSON) = (quiet, json)
  }
}
