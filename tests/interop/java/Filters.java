import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.SqlFilter;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Apache's SQL92 filter, asked as its broker asks it: `Filters FILE`. A line of the file is a message, "m" and its
 * properties as name and value in turn, or an expression, "e" and its text; all in Base64, with tabs between. For each
 * expression it writes a line: "refused", or a 0 or 1 for each message.
 */
public class Filters {
    public static void main(String[] args) throws Exception {
        List<Map<String, String>> messages = new ArrayList<>();
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("m")) {
                Map<String, String> properties = new HashMap<>();
                for (int i = 1; i < words.length; i += 2) {
                    properties.put(text(words[i]), text(words[i + 1]));
                }
                messages.add(properties);
            } else {
                answers.append(answer(text(words[1]), messages)).append('\n');
            }
        }
        System.out.print(answers);
    }

    static String answer(String expression, List<Map<String, String>> messages) {
        Expression compiled;
        try {
            compiled = new SqlFilter().compile(expression);
        } catch (Throwable e) {
            return "refused";
        }
        StringBuilder matches = new StringBuilder();
        for (Map<String, String> properties : messages) {
            Object result = null;
            try {
                result = compiled.evaluate(new MessageEvaluationContext(properties));
            } catch (Throwable e) {
                // The broker logs it, and the message does not match.
            }
            matches.append(Boolean.TRUE.equals(result) ? '1' : '0');
        }
        return matches.toString();
    }

    static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }
}
